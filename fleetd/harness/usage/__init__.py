"""Usage of models as transcripts of agent CLIs report it, one module per CLI."""
