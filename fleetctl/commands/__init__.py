"""The commands, a file per group; each is imported only when its group is named."""
