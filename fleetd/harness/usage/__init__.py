"""Usage: what transcripts of agent CLIs tell of the requests to models, one module per CLI."""
