"""What lies in an owner's directory, by names alone; must not read a file nor change anything."""

import os
from collections.abc import Iterable

import msgspec

from ...host.atomic_files import TEMP, Directory
from .layout import LATEST, Layout


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the directory of a mission or a run.

    ``files`` are ids with a regular file, ``blocked`` those with something else in its place,
    ``foreign`` the paths below it that are none of ours. ``latest`` is what ``latest.json`` points
    at, None when it is not a symlink; ``latest_kind`` says what it is instead. With ``copies`` it
    ought to be a file.
    """

    files: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()
    foreign: list[str] = []
    latest: str | None = None
    latest_kind: str = "missing"
    copies: bool = False

    def latest_trouble(self, wanted: str | None) -> str:
        """Say what is wrong with ``latest.json`` if it has to name ``wanted``; empty if nothing.

        What a copy of the newest one holds is not looked at.
        """
        if self.copies:
            return self._copy_trouble(wanted)
        if wanted is None:  # a link to nothing is wrong; a file of somebody else's is not ours
            return f"points at {self.latest}, but no checkpoint has a file" if self.latest else ""
        if self.latest is None:
            return f"is {self.latest_kind}"
        if self.latest == f"{wanted}.json":
            return ""
        if self.latest == LATEST:
            return "points at itself"
        gone = "" if self.latest.removesuffix(".json") in self.files else ", which is not there"
        return f"points at {self.latest}{gone}"

    def _copy_trouble(self, wanted: str | None) -> str:
        there = self.latest_kind == "a file"
        if wanted is None:
            return "is there, but no snapshot has a file" if there else ""
        return "" if there else f"is {self.latest_kind}"


def listing_of(layout: Layout, top: Directory, files: Directory | None) -> Listing:
    """Look at the names in an owner's directory, and in the one inside it that holds the files."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    foreign: list[str] = []
    latest, kind = None, "missing"
    rooms = [top] if files in (None, top) else [top, files]
    for room in filter(None, rooms):
        for entry in _entries(room):
            if room is top and entry.name == LATEST:
                latest, kind = _latest(room, entry)
            elif room is files and (record_id := layout.record_in(entry.name)) is not None:
                found[entry.is_file(follow_symlinks=False)].add(record_id)
            elif not _is_ours(layout, entry, at_top=room is top):
                foreign.append(entry.name if room is top else f"{layout.inside}/{entry.name}")
    return Listing(
        files=frozenset(found[True]),
        blocked=frozenset(found[False] - found[True]),
        foreign=sorted(foreign),
        latest=latest,
        latest_kind=kind,
        copies=layout.copies,
    )


def _entries(room: Directory) -> Iterable[os.DirEntry[str]]:
    with os.scandir(room.descriptor) as entries:
        return list(entries)


def _is_ours(layout: Layout, entry: os.DirEntry[str], *, at_top: bool) -> bool:
    return entry.name.startswith(TEMP) or (at_top and entry.name == layout.inside)


def _latest(top: Directory, entry: os.DirEntry[str]) -> tuple[str | None, str]:
    """Return what ``latest.json`` points at, and what it is."""
    if entry.is_symlink():
        return os.readlink(LATEST, dir_fd=top.descriptor), "a symlink"
    if entry.is_dir(follow_symlinks=False):
        return None, "a directory"
    return None, "a file" if entry.is_file(follow_symlinks=False) else "no file"
