"""Settings of agent CLIs: install, uninstall and inspect fleetd's hooks and MCP servers."""
