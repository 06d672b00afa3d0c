"""Silence, lost agents and what has come due."""
