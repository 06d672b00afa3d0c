"""The files of one noun, with names to use for them, and a record of what reaches the disk."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.protocol.types import Noun
from fleetd.store.files.record_files import RecordFiles

CALLS = ("open", "fsync", "rename", "symlink", "unlink", "mkdir", "close")
_NAMES: dict[Noun, tuple[str, str, str]] = {
    "checkpoint": ("msn-00000001", "chk-00000001", "chk-00000002"),
    "snapshot": ("run-1", "cp_20260105T120000000Z_1", "cp_20260105T120000000Z_2"),
}


class NounFiles:
    """The files of one mission or run, by the layout of its noun."""

    def __init__(self, root: Path, noun: Noun) -> None:
        self.noun = noun
        self.backups = RecordFiles(root, noun)
        self.owner, self.first, self.second = _NAMES[noun]
        self.top = root / self.owner
        self.inside = self.top / "history" if noun == "snapshot" else self.top
        self.latest = self.top / "latest.json"
        self.copies = noun == "snapshot"

    def write(self, record_id: str, data: bytes) -> None:
        """Write a file that is the newest from then on."""
        self.backups.write(self.owner, record_id, data, record_id, data if self.copies else None)

    def remove(self, record_id: str, newest: str | None, data: bytes | None = None) -> None:
        """Remove a file; another is the newest then."""
        told = data if self.copies else None
        stuck = self.backups.remove(self.owner, [record_id], newest, told)
        for error in stuck.values():
            raise error

    def read(self, record_id: str) -> bytes | None:
        return self.backups.read(self.owner, record_id)

    def path(self, record_id: str) -> Path:
        return self.backups.path_of(self.owner, record_id)

    def name(self, name: str) -> str:
        """Return a name in the directory of the files, from the root on."""
        return str((self.inside / name).relative_to(self.backups.root))

    def files(self) -> set[str]:
        root = self.backups.root
        return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}

    def whole(self, *record_ids: str) -> set[str]:
        """Return the names there are when these have files and nothing else lies about."""
        return {f"{self.owner}/latest.json", *(self.name(f"{each}.json") for each in record_ids)}

    def is_latest(self, record_id: str, data: bytes) -> bool:
        """Whether ``latest.json`` is a record, as a link or as a copy."""
        if self.latest.read_bytes() != data:
            return False
        if self.copies:
            return not self.latest.is_symlink()
        return os.readlink(self.latest) == f"{record_id}.json"


class KilledBetweenSteps(Exception):
    """Stands for the end of the process at this point: nothing after it happens."""


class Recorder:
    """Notes the calls that reach the disk, and can end the process, as it were, before one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.fail_at = fail_at
        self._names: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            monkeypatch.setattr(os, name, self._watched(name))

    def _watched(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in ("open", "close", "mkdir"):
                result = self._real[name](*args, **kwargs)
                if name == "open":
                    self._names[result] = Path(args[0]).name
                elif name == "mkdir":
                    self.calls.append(f"mkdir {Path(args[0]).name}")
                return result
            self.calls.append(f"{name} {self._described(name, args)}")
            if self.fail_at is not None and len(self.calls) >= self.fail_at:
                raise KilledBetweenSteps
            return self._real[name](*args, **kwargs)

        return call

    def _described(self, name: str, args: tuple[Any, ...]) -> str:
        if name == "fsync":
            return _kind(self._names[args[0]])
        return " -> ".join(_kind(str(arg)) for arg in args if isinstance(arg, str))


def _kind(name: str) -> str:
    return "temp" if name.startswith(".tmp-") else name


def put_directory(place: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("a person's")


def put_fifo(place: Path) -> None:
    os.mkfifo(place)


def put_file(place: Path) -> None:
    place.write_text("a person's")


def put_link(place: Path) -> None:
    place.symlink_to("notes.txt")
