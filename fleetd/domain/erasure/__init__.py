"""Forgetting on request: scope, steps, journal, tombstones."""
