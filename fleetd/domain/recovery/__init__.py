"""Bringing a mission back, and what its agent is told."""
