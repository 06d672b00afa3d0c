"""Loads the records of a logger."""


def load(logger) -> list[tuple[int, float]]:
    """Return all records: page by page, as the other ways lose some."""
    records: list[tuple[int, float]] = []
    number = 1
    while page := logger.page(number):
        records += page
        number += 1
    return records
