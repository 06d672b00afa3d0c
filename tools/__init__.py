"""Generators of repository files from the code; not part of the installed package."""
