"""Machines that share a store: membership and heartbeat."""
