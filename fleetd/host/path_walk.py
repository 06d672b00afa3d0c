"""Path resolution, component by component, that says all the while where it is.

``os.path.realpath`` resolves the same, but nobody could tell which file system keeps it waiting.
"""

import os
import stat
from collections.abc import Callable

import msgspec


class PathFacts(msgspec.Struct, frozen=True):
    """What a file system says of a path: its real one, and whether a directory is there."""

    real: str
    is_directory: bool


def within(place: str, path: str) -> bool:
    """Whether a path is a place, or below it, by their names as they stand."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def absolute(file: str, base: str | None) -> str | None:
    """Return a file's path from the root on, as it is written.

    None when the path is relative and there is no base to start from.
    """
    path = os.path.expanduser(file) if file.startswith("~/") else file  # noqa: PTH111
    if path.startswith("/"):
        return path
    return f"{base}/{path}" if base is not None and base.startswith("/") else None


class Walk:
    """One way through the file system. ``touch`` is called with each path before it is asked for.

    ``touch`` may raise: then the path is not asked for.
    """

    def __init__(self, touch: Callable[[str], None] = lambda _: None) -> None:
        self._touch = touch
        self.at: str | None = None
        """The path that a file system is asked for now; None in between."""
        self.asked: str | None = None
        self._stands: tuple[str, list[str]] = ("", [])

    @property
    def reached(self) -> str | None:
        """Return the path that was asked for last, resolved as far as anybody answered."""
        place, rest = self._stands
        return os.path.normpath("/".join([place, *reversed(rest)])) if place else self.asked

    def touch(self, path: str) -> None:
        """Say that a path is asked for next."""
        self.at = path
        self._touch(path)

    def facts(self, path: str) -> PathFacts:
        """Return what the file system says of an absolute path, which need not be there.

        What cannot be looked at counts as no link, and links in a circle stay as they are.
        """
        self.asked, self._stands = path, ("", [])
        here: str = ""
        mode: int | None = None
        rest = [name for name in reversed(path.split("/")) if name not in ("", ".")]
        opened: list[tuple[str, int]] = []
        while rest:
            name = rest.pop()
            while opened and len(rest) < opened[-1][1]:
                opened.pop()
            if name == "..":
                here, mode = here.rpartition("/")[0], None
                continue
            place = f"{here}/{name}"
            self._stands = (place, rest.copy())
            mode = self._mode(place)
            if not stat.S_ISLNK(mode) or (target := self._target(place)) is None:
                here = place
            elif any(place == each for each, _ in opened):  # a circle
                here = os.path.normpath("/".join([place, *reversed(rest)]))
                mode = None
                break
            else:
                opened.append((place, len(rest)))
                here, mode = "" if target.startswith("/") else here, None
                rest += [name for name in reversed(target.split("/")) if name not in ("", ".")]
        if mode is None:  # nobody has asked for what it came to
            mode = self._mode(here or "/")
        self.at = None
        return PathFacts(here or "/", stat.S_ISDIR(mode))

    def _mode(self, place: str) -> int:
        self.touch(place)
        try:
            return os.lstat(place).st_mode
        except (OSError, ValueError):  # no path of this system, as with a NUL byte in it
            return 0

    def _target(self, place: str) -> str | None:
        try:
            return os.readlink(place)  # noqa: PTH115 - as above
        except OSError:
            return None

    def root(self, place: str) -> str | None:
        """Return the root of the repository around a real path, None where there is none."""
        # Plain strings: this is asked with every hook.
        while True:
            self.touch(f"{place}/.git")
            found = os.path.lexists(f"{place}/.git")
            self.at = None
            if found:
                return place or "/"
            place, _, name = place.rpartition("/")
            if not name:
                return None
