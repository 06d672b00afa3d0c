"""Reports: what an agent or a mission did, collected from records and from the log."""
