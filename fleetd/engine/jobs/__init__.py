"""What the daemon does by the clock."""
