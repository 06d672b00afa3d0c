"""Sessions of agent CLIs: their agents, missions and plans; what hooks report and get back."""
