"""Leases on files and the waits for them."""
