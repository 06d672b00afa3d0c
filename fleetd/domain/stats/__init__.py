"""Statistics of what the log tells."""
