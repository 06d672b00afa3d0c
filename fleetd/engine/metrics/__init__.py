"""Figures about the daemon, and its health."""
