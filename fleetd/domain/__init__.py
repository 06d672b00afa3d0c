"""The rules: synchronous functions on one transaction; no clock, no files, no trio, no threads."""
