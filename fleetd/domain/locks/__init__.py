"""Leases on files and who waits for them."""
