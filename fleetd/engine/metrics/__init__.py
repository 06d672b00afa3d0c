"""Metrics: figures about the daemon, and its health."""
