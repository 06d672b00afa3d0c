"""File layout: where the files of checkpoints and snapshots lie below their root.

A checkpoint's: ``<mission_id>/<checkpoint_id>.json``, with ``latest.json`` a relative symlink to
the newest. A snapshot's: ``<run_id>/history/<snapshot_id>.json``, or ``.json.gz`` when it is old,
with ``latest.json`` a file of its own (source: snapshot-lifecycle, Rotation behavior).
"""

import errno
import re
from typing import Any

import msgspec

from ...protocol.errors import Corrupt, IntegrityMismatch, SchemaInvalid
from ...protocol.types import RECORD_ID, RUN_ID, SNAPSHOT_ID, Noun

LATEST = "latest.json"
PLAIN, GZIP = ".json", ".json.gz"
# Below the root, what was pulled of other machines. No mission and no run has such a name, so that
# nobody takes it for one of theirs.
PULLED = ".pulled"


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of one noun lie, and how their names are read.

    ``owners`` matches the names of directories, ``records`` the ids of files; ``inside`` is the
    directory within an owner's that holds them, None for the owner's own. ``endings`` are the forms
    a file may have, the plain one first. ``copies`` says that ``latest.json`` is a file with the
    newest one's bytes and no symlink. ``unfit`` is the error for what is no such file at all,
    ``mismatch`` for one that was changed.
    """

    noun: Noun
    owners: re.Pattern[str]
    records: re.Pattern[str]
    inside: str | None
    endings: tuple[str, ...]
    copies: bool
    unfit: type[Corrupt]
    mismatch: type[Corrupt]
    hint: str

    def owner(self, owner_id: str) -> str:
        """Return an id that may name a directory; raises NotAnId for any other text."""
        return _checked(self.owners, owner_id)

    def record(self, record_id: str) -> str:
        """Return an id that may name a file; raises NotAnId for any other text."""
        return _checked(self.records, record_id)

    def record_in(self, name: str) -> str | None:
        """Return the id in a name that looks like one of this layout's files."""
        for ending in self.endings:
            record_id = name.removesuffix(ending)
            if record_id != name and self.records.fullmatch(record_id):
                return record_id
        return None

    def not_a_file(self, where: Any, why: str) -> Corrupt:
        """Return the error for something else than a readable file of sane size."""
        return self.unfit(
            f"Corrupted {self.noun} file: {where} ({why}).", hint=self.hint, path=str(where)
        )

    def damaged(self, where: Any, why: str) -> Corrupt:
        """Return the error for a file that is not what was written."""
        return self.mismatch(
            f"Corrupted {self.noun} file: {where} ({why}).", hint=self.hint, path=str(where)
        )


class NotAnId(OSError, ValueError):
    """A text that becomes no name of ours; a damaged row may hold one, so that no file has it."""


def _checked(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise NotAnId(errno.EINVAL, "not an id", name)
    return name


LAYOUTS: dict[Noun, Layout] = {
    "checkpoint": Layout(
        noun="checkpoint",
        owners=re.compile(RECORD_ID),
        records=re.compile(RECORD_ID),
        inside=None,
        endings=(PLAIN,),
        copies=False,
        unfit=Corrupt,
        mismatch=Corrupt,
        hint="Move it away; fleetctl checkpoints verify --all --repair writes it again.",
    ),
    "snapshot": Layout(
        noun="snapshot",
        owners=re.compile(RUN_ID),
        records=re.compile(SNAPSHOT_ID),
        inside="history",
        endings=(PLAIN, GZIP),
        copies=True,
        unfit=SchemaInvalid,
        mismatch=IntegrityMismatch,
        hint="Move it away; fleetctl snapshot verify --repair writes it again.",
    ),
}
