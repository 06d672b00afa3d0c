"""fleetd: a per-user daemon that remembers for fleets of AI coding agents; imports nothing."""

__version__ = "0.1.0"
