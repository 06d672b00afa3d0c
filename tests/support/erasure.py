"""A secret that must be forgotten, and the places that still contain it."""

from pathlib import Path

from tests.support.fleet import Fleet

SECRET = "sentinel-7f3a"


def places_of(root: Path, *texts: str) -> list[str]:
    """Return every file below a directory whose bytes or name contain one of the texts."""
    found = []
    for path in sorted(root.rglob("*")):
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found += [str(path) for text in texts if text in path.name or text.encode() in data]
    return found


def rows_with(fleet: Fleet, text: str) -> dict[str, int]:
    """Return how often each table contains a text; leave out tables without it."""
    counted = {name: str(rows).count(text) for name, rows in fleet.dump().items()}
    return {name: count for name, count in counted.items() if count}
