"""Rules about run snapshots; must not know files."""
