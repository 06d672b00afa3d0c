"""Jobs: what the daemon does at certain times."""
