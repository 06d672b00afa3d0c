"""Verified read: the record in a file, after all checks.

A snapshot's file may be there in two forms, and ``latest.json`` is a third copy of the newest one.
An intact form replaces a damaged one.
"""

import contextlib

import msgspec

from ...domain.artifacts.kinds import KINDS, FileRecord, counters_in, id_of, owner_of
from ...domain.artifacts.outbox import Latest
from ...domain.snapshots.codec import with_file, with_warning
from ...protocol.errors import Corrupt, FleetError, Incompatible
from ...protocol.snapshots import Snapshot
from ...store.files.layout import LATEST, Layout
from ...store.files.record_files import FileForm, RecordFile, RecordFiles

# No log and no lock ever counts this far (285 years at a million a second), and every client can
# count up to it. A count that goes on from beyond would reach the limit of the database.
MOST = 2**53


class FormsRead(msgspec.Struct, frozen=True, kw_only=True):
    """The forms of one file.

    ``record`` is the record in the first intact form, ``trouble`` a problem with any of them,
    ``there`` whether there is any form. ``latest.json`` is not counted as a form.
    """

    record: FileRecord | None
    trouble: FleetError | OSError | None
    there: bool


def read_forms(backups: RecordFiles, file: RecordFile) -> FormsRead:
    """Look at all forms of a file; raises OSError when nothing can be looked at."""
    record: FileRecord | None = None
    trouble: FleetError | OSError | None = None
    forms = backups.forms(file.owner_id, file.record_id)
    for form in forms:
        try:
            found = _record_of(backups.layout, form, file)
        except (Corrupt, Incompatible, OSError) as error:
            trouble = trouble or error
        else:
            record = record or found
    if record is None:
        record = _from_latest(backups, file)
    if isinstance(record, Snapshot) and (trouble is not None or not forms):
        what = trouble.message if isinstance(trouble, FleetError) else trouble
        record = with_warning(record, str(what or "its file is missing"))
    return FormsRead(record=record, trouble=trouble, there=bool(forms))


def verified(backups: RecordFiles, file: RecordFile) -> FileRecord | None:
    """Return the record of a file from an intact form, None when it is gone.

    Raises Corrupt, also when the file holds another record than its name says, Incompatible and
    OSError.
    """
    found = read_forms(backups, file)
    if found.record is None and found.trouble is not None:
        raise found.trouble
    return found.record


def latest_data(backups: RecordFiles, owner_id: str, latest: Latest) -> bytes | None:
    """Return the content for a copy of the newest record, from its file if its row is damaged."""
    if latest.id is None or latest.data is not None or not backups.layout.copies:
        return latest.data
    with contextlib.suppress(FleetError, OSError):
        record = verified(backups, RecordFile(owner_id, latest.id))
        return KINDS[backups.layout.noun].to_file(record) if record else None
    return None


def _record_of(layout: Layout, form: FileForm, file: RecordFile) -> FileRecord:
    path = str(form.path)
    record: FileRecord = KINDS[layout.noun].from_file(form.plain(), path)
    if (owner_of(record), id_of(record)) != (file.owner_id, file.record_id):
        raise layout.damaged(path, f"it holds {id_of(record)} of {owner_of(record)}")
    if max(counters_in(record)) > MOST:
        raise layout.not_a_file(path, "it holds a number beyond the limit")
    if isinstance(record, Snapshot):
        return with_file(record, form.raw, compressed=form.compressed)
    return record


def _from_latest(backups: RecordFiles, file: RecordFile) -> FileRecord | None:
    """Return the record from ``latest.json``, if that is an intact copy of it."""
    if not backups.layout.copies:
        return None
    data = backups.latest_bytes(file.owner_id)
    if data is None:
        return None
    path = backups.root / file.owner_id / LATEST
    with contextlib.suppress(Corrupt, Incompatible):
        return _record_of(backups.layout, FileForm(path=path, raw=data, data=data), file)
    return None
