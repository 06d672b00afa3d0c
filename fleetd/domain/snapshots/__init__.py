"""Snapshots of runs."""
