"""Loads the records of a logger."""


def load(logger) -> list[tuple[int, float]]:
    """Return all records."""
    return sorted(logger.read_all())
