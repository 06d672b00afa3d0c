"""Checkpoint codec: content and checksum, as bytes and as a row."""

import hashlib
from typing import Any

import msgspec
from msgspec import Raw

from ...protocol.errors import Corrupt, Incompatible
from ...protocol.records import (
    CHECKPOINT_VERSION,
    Checkpoint,
    CheckpointContent,
    Integrity,
    Lock,
    MissionState,
    PendingMessage,
    Record,
    RecoveryContext,
    SortieState,
    SourceDetail,
)
from ..core.tx import Row
from .versions import LAYOUTS, VersionLayout, layout_of, migrated, migration_warning

# Fields that have the same form in a row and in the record.
_PLAIN_FIELDS = (
    *("id", "mission_id", "timestamp", "trigger", "trigger_details", "progress_percent"),
    *("created_by", "version", "seq"),
)
# The columns that hold JSON, and the record type of which each holds one or a list.
_JSON_COLUMNS: dict[str, type[Record]] = {
    "mission_json": MissionState,
    "recovery_context_json": RecoveryContext,
    "sorties_json": SortieState,
    "locks_json": Lock,
    "messages_json": PendingMessage,
}
CONTENT_FIELDS = frozenset(CheckpointContent.__struct_fields__)
_OUTSIDE = frozenset(Checkpoint.__struct_fields__) - CONTENT_FIELDS
_encode = msgspec.json.Encoder().encode
_canonical = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode
_checkpoint = msgspec.json.Decoder(Checkpoint).decode
_whole = msgspec.json.Decoder(dict[str, Any]).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_details = msgspec.json.Decoder(list[SourceDetail]).decode
_strings = msgspec.json.Decoder(list[str]).decode


def canonical(content: Record | dict[str, Any]) -> bytes:
    """Return the content as canonical JSON: keys sorted, no white space, UTF-8 unescaped."""
    return _canonical(content)


def digest_of(canonical_json: bytes) -> str:
    """Return the SHA-256 of canonical JSON, in hex."""
    return hashlib.sha256(canonical_json).hexdigest()


def to_file(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of a backup file: the content with its integrity beside it, one line."""
    return _canonical(_only_content(checkpoint) | {"integrity": checkpoint.integrity}) + b"\n"


def file_of(row: Row) -> bytes:
    """Return the bytes that a row's file must hold; raises as ``from_row`` does."""
    content = _content_of(row)
    if _as_written(row, canonical(content)):
        # Assembled from the row's own parts: no record is needed here.
        return _canonical(content | {"integrity": Integrity(digest=row["digest"])}) + b"\n"
    return to_file(from_row(row))


def as_taken(content: CheckpointContent, digest: str, warnings: list[str]) -> Checkpoint:
    """Return a checkpoint as it is right after it was taken: in the database, not yet in a file."""
    return Checkpoint(
        **_only_content(content),
        integrity=Integrity(digest=digest),
        storage_locations=["sqlite"],
        warnings=warnings,
    )


def _only_content(checkpoint: CheckpointContent) -> dict[str, Any]:
    """Return the fields that the checksum covers; a Checkpoint has more than these."""
    return {name: getattr(checkpoint, name) for name in CONTENT_FIELDS}


def from_file(data: bytes, where: str) -> Checkpoint:
    """Read a backup file. ``where`` names it in errors.

    A checkpoint of an older version is migrated, with a warning. Raises Corrupt for bytes that are
    no checkpoint or fail their checksum, Incompatible for a version this program does not know.
    """
    try:
        whole = _whole(data)
        content = {name: value for name, value in whole.items() if name not in _OUTSIDE}
        layout = layout_of(content.get("version"), where, path=where)
        known = msgspec.convert(whole.get("integrity"), Integrity | None)
        return _checked(content, known.digest if known else None, layout)
    except _UNREADABLE as error:
        raise Corrupt(
            f"Corrupted checkpoint file: {where} {_why(error)}.",
            hint="fleetctl checkpoint verify --all --repair rewrites it from the database.",
            path=where,
        ) from error


def from_row(row: Row) -> Checkpoint:
    """Build a Checkpoint from its row and check it; migrate an older one as ``from_file`` does.

    Raises Corrupt when the row fails its checksum or is not readable, Incompatible for an unknown
    version whose checksum matches.
    """
    where = f"The database row of checkpoint {row['id']}"
    try:
        whole = canonical(_content_of(row))
        if _as_written(row, whole):  # then one pass over the bytes is enough
            checkpoint = _with_digest(_checkpoint(whole), row["digest"])
        else:
            checkpoint = _looked_into(_decode(whole), row, where)
        beside = _beside(row)
        warnings = [*beside.pop("warnings"), *checkpoint.warnings]
        return msgspec.structs.replace(checkpoint, **beside, warnings=warnings)
    except _UNREADABLE as error:
        raise Corrupt(
            f"Checkpoint {row['id']} is damaged in the database: its row {_why(error)}.",
            hint=f"fleetctl checkpoint verify {row['id']} --repair restores it from its file.",
            checkpoint_id=row["id"],
            reason=_why(error),
        ) from error


def as_stored(row: Row) -> Raw | None:
    """Return the JSON of a row's Checkpoint, assembled from the JSON in the row.

    That JSON is not decoded, but its checksum is compared. Returns None for a row that ``from_row``
    has to check: damaged, of an older version, or written before a record got a new field.
    """
    try:
        content = _content_of(row)
        if not _as_written(row, canonical(content)) or not _has_all_fields(row):
            return None
        integrity = Integrity(digest=row["digest"])
        outside = {"integrity": integrity, "file_on": None, **_beside(row)}
        return Raw(_encode(content | outside))
    except _UNREADABLE:
        return None


def _beside(row: Row) -> dict[str, Any]:
    """Return the fields that a row holds in addition to the checkpoint's content."""
    return {
        "source_details": _details(row["source_details_json"]),
        "consumed_at": row["consumed_at"],
        "backed_up_at": row["backed_up_at"],
        "storage_locations": ["sqlite", "file"] if row["backed_up_at"] else ["sqlite"],
        "warnings": _strings(row["warnings_json"]),
    }


def _has_all_fields(row: Row) -> bool:
    """Return whether the records in an undamaged row have exactly the present fields.

    One encoder wrote each list, so the first record has the fields of all.
    """
    for column, kind in _JSON_COLUMNS.items():
        text = row[column]
        if text in (None, "[]"):
            continue
        if text.startswith("["):  # a cut inside a string fails to decode
            text = text[1 : text.find('},{"') + 1 or -1]
        if _fields(text).keys() != set(kind.__struct_encode_fields__):
            return False
    return True


def _as_written(row: Row, whole: bytes) -> bool:
    """Return whether the assembled parts of a row are of the present version and undamaged."""
    return bool(row["version"] == CHECKPOINT_VERSION and digest_of(whole) == row["digest"])


def _looked_into(content: dict[str, Any], row: Row, where: str) -> Checkpoint:
    """Return the migrated checkpoint of an older row; raise for a damaged or unknown one."""
    layout = _layout_of_row(content, row, where)
    if layout is not None:
        content = {name: value for name, value in content.items() if name in layout.fields}
    return _checked(content, row["digest"], layout)


def _layout_of_row(content: dict[str, Any], row: Row, where: str) -> VersionLayout | None:
    try:
        return layout_of(row["version"], where, checkpoint_id=row["id"])
    except Incompatible:
        if digest_of(canonical(content)) == row["digest"]:
            raise
        raise ChecksumError from None  # damaged, and its file may be of our version


class ChecksumError(ValueError):
    """The content does not match its checksum."""


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def _why(error: Exception) -> str:
    if isinstance(error, ChecksumError):
        return "does not match its checksum"
    return f"is not a checkpoint ({error})"


def _checked(
    content: dict[str, Any], digest: str | None, layout: VersionLayout | None
) -> Checkpoint:
    """Compare content with its checksum and build the record, in the present version."""
    sealed = layout is None or layout.sealed or bool(digest)
    if sealed and digest_of(canonical(content)) != digest:
        raise ChecksumError
    if layout is None:
        return _with_digest(msgspec.convert(content, Checkpoint), digest or "")
    checkpoint = msgspec.convert(migrated(content, layout), Checkpoint)
    new = digest_of(canonical(_only_content(checkpoint)))
    return as_taken(checkpoint, new, [migration_warning(content["version"])])


def _with_digest(checkpoint: Checkpoint, digest: str) -> Checkpoint:
    return msgspec.structs.replace(checkpoint, integrity=Integrity(digest=digest))


def is_migrated(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint was migrated, so that its copies have to be rewritten."""
    return any(migration_warning(version) in checkpoint.warnings for version in LAYOUTS)


def _content_of(row: Row) -> dict[str, Any]:
    """Return the content by field; fields that are JSON in the row stay raw JSON."""
    return {
        **{name: row[name] for name in _PLAIN_FIELDS},
        "mission": Raw(row["mission_json"]) if row["mission_json"] else None,
        "sorties": Raw(row["sorties_json"]),
        "active_locks": Raw(row["locks_json"]),
        "pending_messages": Raw(row["messages_json"]),
        "recovery_context": Raw(row["recovery_context_json"]),
        "undo": bool(row["undo"]),
    }


def to_columns(content: CheckpointContent, sorties_json: str | None = None) -> Row:
    """Return the columns of the row that hold the content, digest and counts included.

    ``sorties_json`` is the canonical JSON of its sorties, where that is known.
    The JSON columns are canonical too, so that the whole can be assembled from them again.
    """
    columns: Row = {
        **{name: getattr(content, name) for name in _PLAIN_FIELDS},
        "undo": int(content.undo),
        "sortie_count": len(content.sorties),
        "lock_count": len(content.active_locks),
        "message_count": len(content.pending_messages),
        "mission_json": _text(content.mission) if content.mission else None,
        "recovery_context_json": _text(content.recovery_context),
        "locks_json": _text(content.active_locks),
        "messages_json": _text(content.pending_messages),
        "sorties_json": sorties_json or _text(content.sorties),
    }
    whole = canonical(_content_of(columns))
    return columns | {"size_bytes": len(whole), "digest": digest_of(whole)}


def _text(value: object) -> str:
    return _canonical(value).decode()
