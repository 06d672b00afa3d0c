"""The JSON files of checkpoints and snapshots, and their directories."""
