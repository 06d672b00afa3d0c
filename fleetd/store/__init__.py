"""Storage: the database and the checkpoint files."""
