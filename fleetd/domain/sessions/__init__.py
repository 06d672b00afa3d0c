"""Rules about sessions of agent CLIs: what their hooks tell, and what they are told."""
