"""Putting fleetd's hooks into the settings of agent CLIs, taking them out, and looking at them."""
