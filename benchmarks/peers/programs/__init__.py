"""What runs in a peer's own environment; must import nothing of fleetd and little of Python."""
