"""The store in one SQLite file, which one daemon has to itself."""
