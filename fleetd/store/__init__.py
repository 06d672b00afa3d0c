"""Where bytes rest: the database and the checkpoint files."""
