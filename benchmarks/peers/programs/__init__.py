"""Programs for a peer's own environment; must import nothing of fleetd and little of Python."""
