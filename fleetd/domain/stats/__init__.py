"""Statistics from the log."""
