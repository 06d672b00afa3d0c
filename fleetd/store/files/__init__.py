"""The JSON files of checkpoints and snapshots, and the directories they lie in."""
