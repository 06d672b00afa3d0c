"""Unit files: shown, written whole, removed.

Each begins with a line that names the digest of the rest, so that a file which somebody edited is
told from one that an earlier version wrote.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState

from ..integrations import config_file

EDITED = ".edited"
_MARK = "Written by fleetctl daemon install; its own text has the digest"
_MARKED = re.compile(rf"{_MARK} ([0-9a-f]{{16}})")


class UnitFile(NamedTuple):
    """A file as it is, and what is to become of it; ``after`` is None when it is to go."""

    file: config_file.SettingsFile
    after: bytes | None

    @property
    def path(self) -> Path:
        """Return where it lies."""
        return self.file.path

    @property
    def changes(self) -> bool:
        """Return whether there is anything to do."""
        return self.after != self.file.data

    @property
    def edited(self) -> bool:
        """Return whether somebody changed it, or made it, by hand."""
        return self.file.data is not None and not _is_ours(self.file.data)

    def diff(self) -> Iterator[str]:
        """Yield the lines of the change, as ``diff -u`` has them."""
        name = str(self.path)
        old = "/dev/null" if self.file.data is None else name
        new = "/dev/null" if self.after is None else name
        before, after = _lines(self.file.data), _lines(self.after)
        import difflib

        yield from difflib.unified_diff(before, after, old, new, lineterm="")

    def carry_out(self) -> Path | None:
        """Write or remove the file; return where the text is kept that somebody had edited.

        Raises Storage and InvalidState.
        """
        kept = self.path.with_name(self.path.name + EDITED) if self.edited else None
        if kept:
            config_file.write(config_file.read(kept), self.file.data)
        config_file.write(self.file, self.after)
        return kept


def planned(path: Path, text: str | None) -> UnitFile:
    """Return what becomes of a file; raises InvalidState when it may not be touched."""
    if path.is_symlink():
        raise InvalidState(
            f"{path} is a link, perhaps from whoever packaged fleetd or masked the unit.",
            hint=f"Look where it leads: ls -l {path}. Remove the link, then try again.",
        )
    change = UnitFile(config_file.read(path), None if text is None else text.encode())
    if change.changes:
        config_file.check_writable(change.file)
    return change


def marked(text: str, before: str, after: str = "") -> str:
    """Return a text with the line that names its digest, between the marks of a comment."""
    return f"{before}{_MARK} {_digest(text)}{after}\n{text}"


def marks(line: str) -> bool:
    """Return whether a line is the one that names the digest."""
    return _MARKED.search(line) is not None


def _is_ours(data: bytes) -> bool:
    lines = data.decode(errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines):
        if found := _MARKED.search(line):
            return _digest("".join(lines[:number] + lines[number + 1 :])) == found[1]
    return False


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode(errors="replace").splitlines()
