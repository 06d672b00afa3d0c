"""Putting fleetd's server into the settings of agent CLIs; loads neither the server nor ``mcp``."""
