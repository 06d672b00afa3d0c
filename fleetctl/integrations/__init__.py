"""fleetd in the settings of agent CLIs: hooks and servers of tools, in, out, and looked at."""
