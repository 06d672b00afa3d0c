"""Snapshot codec: a document and its checksum, as bytes and as a row, and its kind of record.

The nine fields are in the order of docs/snapshots.md. A snapshot is never served before its
checksum was compared.
"""

import hashlib
from typing import Any, NoReturn

import msgspec

from ...protocol.errors import (
    AtomicWriteFailed,
    Corrupt,
    IntegrityMismatch,
    RetentionPruneFailed,
    SchemaInvalid,
)
from ...protocol.events import SnapshotsPruned
from ...protocol.records import Integrity, SourceDetail
from ...protocol.snapshots import Artifact, Snapshot, SnapshotContent, SnapshotDocument
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import RunId, SnapshotId
from ..artifacts.kinds import RecordKind, register_kind
from ..checkpoints.codec import ChecksumError, canonical, digest_of
from ..core.context import Context
from ..core.tx import Row, Tx

_SEAL = Integrity(digest="")
VERSION = str(_SEAL.format_version)
CONTENT_FIELDS = SnapshotContent.__struct_fields__
# Digits of a `seq` that a row can hold.
_SEQ_DIGITS = 18
_in_order = msgspec.json.Encoder().encode
_whole = msgspec.json.Decoder(dict[str, Any]).decode
_details = msgspec.json.Decoder(list[SourceDetail]).decode
_strings = msgspec.json.Decoder(list[str]).decode


class _Names(msgspec.Struct, frozen=True):
    """The fields that become names of files and directories, so that they must be ids."""

    snapshot_id: SnapshotId
    run_id: RunId


def to_file(snapshot: SnapshotDocument) -> bytes:
    """Return the bytes of a snapshot's file: its nine fields in order, one line."""
    document = SnapshotDocument(**_fields(snapshot), integrity=snapshot.integrity)
    return _in_order(document) + b"\n"


def _fields(content: SnapshotContent) -> dict[str, Any]:
    return {name: getattr(content, name) for name in CONTENT_FIELDS}


def sealed(content: SnapshotContent) -> SnapshotDocument:
    """Return the content together with its checksum."""
    fields = _fields(content)
    digest = digest_of(canonical(SnapshotContent(**fields)))
    return SnapshotDocument(**fields, integrity=msgspec.structs.replace(_SEAL, digest=digest))


def seq_of(snapshot_id: str) -> int:
    """Return the end of the log when a snapshot was taken, from its id; 0 for other ids."""
    suffix = snapshot_id.rpartition("_")[2]
    counted = suffix.isascii() and suffix.isdecimal() and len(suffix) <= _SEQ_DIGITS
    return int(suffix) if counted else 0


def to_columns(content: SnapshotContent) -> Row:
    """Return the columns of the row that hold the document or follow from it."""
    document = sealed(content)
    data = to_file(document)
    return {
        "id": content.snapshot_id,
        "run_id": content.run_id,
        "timestamp": content.created_at,
        "source": content.source,
        "status": content.status,
        "seq": seq_of(content.snapshot_id),
        "step_id": content.step_state.step_id,
        "step_ordinal": content.step_state.step_ordinal,
        "step_status": content.step_state.step_status,
        "window_pressure": content.context_digest.window_pressure,
        "outcome_count": len(content.command_outcomes),
        "size_bytes": len(data),
        "digest": document.integrity.digest,
        "version": VERSION,
        "file_digest": hashlib.sha256(data).hexdigest(),
        "document_json": data.decode().rstrip("\n"),
    }


def from_file(data: bytes, where: str) -> Snapshot:
    """Read a snapshot's file, uncompressed. ``where`` names it in errors.

    Raises SchemaInvalid for bytes that are no snapshot, or one of an unknown version, and
    IntegrityMismatch for one that does not match its checksum.
    """
    try:
        return _read(data)
    except _UNREADABLE as error:
        _refuse(
            error,
            f"The snapshot file {where}",
            hint="fleetctl snapshot verify --repair rewrites it from the database.",
            path=where,
        )


def from_row(row: Row) -> Snapshot:
    """Build a Snapshot from its row and check it.

    The other columns must match the document. Raises the same errors as ``from_file``.
    """
    try:
        snapshot = _read(row["document_json"].encode())
        if any(row[name] != value for name, value in to_columns(snapshot).items()):
            raise ChecksumError
        return msgspec.structs.replace(
            snapshot,
            agent_id=row["agent_id"],
            window_tokens=row["window_tokens"],
            window_size=row["window_size"],
            note=row["note"],
            source_details=_details(row["source_details_json"]),
            backed_up_at=row["backed_up_at"],
            compressed_at=row["compressed_at"],
            storage_locations=["sqlite", "file"] if row["backed_up_at"] else ["sqlite"],
            artifacts=_artifacts(row),
            warnings=_strings(row["warnings_json"]),
        )
    except _UNREADABLE as error:
        _refuse(
            error,
            f"The database row of snapshot {row['id']}",
            hint=f"fleetctl snapshot verify {row['id']} --repair restores it from its file.",
            snapshot_id=row["id"],
            run_id=row["run_id"],
        )


def _artifacts(row: Row) -> list[Artifact]:
    """Return the forms of the history file; their paths start in the directory of the run."""
    packed = row["compressed_at"] is not None
    there = row["backed_up_at"] is not None and not packed
    forms = [_form(row["id"], row["size_bytes"], row["file_digest"], False, there)]
    if row["gzip_digest"] is not None:
        forms.append(_form(row["id"], row["gzip_bytes"], row["gzip_digest"], True, packed))
    return forms


def _form(snapshot_id: str, size: int, digest: str, compressed: bool, present: bool) -> Artifact:
    return Artifact(
        path=f"history/{snapshot_id}.json{'.gz' if compressed else ''}",
        compressed=compressed,
        present=present,
        size_bytes=size,
        digest=digest,
    )


_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def _read(data: bytes) -> Snapshot:
    whole = _whole(data)
    integrity = _integrity(whole.pop("integrity", None))
    if digest_of(canonical(whole)) != integrity.digest:
        raise ChecksumError
    content = msgspec.convert(whole, SnapshotContent)
    msgspec.convert(whole, _Names)
    if iso(to_ms(content.created_at)) != content.created_at:
        raise ValueError(f"created_at is {content.created_at!r}")
    if digest_of(canonical(content)) != integrity.digest:
        raise ValueError("it has unknown fields or values")
    return Snapshot(**_fields(content), integrity=integrity)


def _integrity(stated: object) -> Integrity:
    """Return the checksum that a document states; raises ValueError if it cannot be compared."""
    # A default must not replace a damaged value.
    if not isinstance(stated, dict) or set(stated) != set(Integrity.__struct_fields__):
        raise ValueError(f"it has no integrity of {', '.join(Integrity.__struct_fields__)}")
    integrity = msgspec.convert(stated, Integrity)
    if (integrity.algorithm, integrity.format_version) != (_SEAL.algorithm, _SEAL.format_version):
        version = f"{integrity.format_version} with {integrity.algorithm}"
        raise ValueError(
            f"its format version is {version}; this fleetd reads {VERSION} with {_SEAL.algorithm}"
        )
    return integrity


def _refuse(error: Exception, what: str, *, hint: str, **values: Any) -> NoReturn:
    refusal: type[Corrupt] = SchemaInvalid
    why = f"is not a readable snapshot ({error})"
    if isinstance(error, ChecksumError):
        refusal, why = IntegrityMismatch, "does not match its checksum"
    raise refusal(f"{what} {why}.", hint=hint, reason=why, **values) from error


def with_file(snapshot: Snapshot, raw: bytes, *, compressed: bool) -> Snapshot:
    """Return a snapshot that was read from one form of its file, whose bytes are ``raw``."""
    digest = hashlib.sha256(raw).hexdigest()
    form = _form(snapshot.snapshot_id, len(raw), digest, compressed, present=True)
    return msgspec.structs.replace(snapshot, artifacts=[form])


def with_warning(snapshot: Snapshot, trouble: str) -> Snapshot:
    """Return a snapshot with the warning that it was read from another copy than expected."""
    warning = f"{trouble.rstrip('.')}; it was read from another copy of it"
    return msgspec.structs.replace(snapshot, warnings=[warning])


def is_from_another_copy(snapshot: Snapshot) -> bool:
    """Return whether a snapshot was read from another file than the expected one."""
    return bool(snapshot.warnings)


def insert_snapshot(tx: Tx, ctx: Context, snapshot: Snapshot) -> Row:
    """Write and return the row of a snapshot that has none; write its run's if that is missing.

    No file has the agent of the run. The log that its commands were gathered from may be lost, so
    they count as declared. This snapshot covers the rest of that log.
    """
    tx.run(
        "INSERT INTO runs (id, status, events_seq) VALUES (:id, :status, :seq)"
        " ON CONFLICT (id) DO UPDATE SET events_seq = CASE WHEN runs.events_seq < :seq"
        " THEN :seq ELSE runs.events_seq END",
        id=snapshot.run_id,
        status=snapshot.status,
        seq=seq_of(snapshot.snapshot_id),
    )
    packed = next((each for each in snapshot.artifacts if each.compressed), None)
    columns = to_columns(snapshot) | {
        "gathered": 0,
        "backed_up_at": ctx.now,
        "verified_at": ctx.now,
        "machine": ctx.machine,
        "compressed_at": ctx.now if packed else None,
        "gzip_digest": packed.digest if packed else None,
        "gzip_bytes": packed.size_bytes if packed else None,
    }
    tx.insert("snapshots", columns)
    tx.run(
        "UPDATE runs SET status = (SELECT status FROM snapshots WHERE run_id = :id"
        " AND deleted_at IS NULL ORDER BY seq DESC LIMIT 1) WHERE id = :id",
        id=snapshot.run_id,
    )
    return columns


register_kind(
    RecordKind(
        noun="snapshot",
        table="snapshots",
        owner="run_id",
        whose="run",
        version=VERSION,
        nameable="1 = 1",
        copies=True,
        compressible=True,
        from_row=from_row,
        from_file=from_file,
        to_file=to_file,
        file_of=lambda row: to_file(from_row(row)),
        to_columns=to_columns,
        insert=lambda tx, ctx, snapshot: (insert_snapshot(tx, ctx, snapshot), False),
        seq_of=lambda snapshot: seq_of(snapshot.snapshot_id),
        to_rewrite=is_from_another_copy,
        retention=lambda settings: (settings.snapshot_days, settings.snapshots_per_run),
        judged="id, run_id AS owner_id, timestamp, source AS cause, seq, status, size_bytes",
        pruned=SnapshotsPruned,
        announced=False,
        list="fleetctl snapshot list",
        verify="fleetctl snapshot verify",
        way_out=lambda record_id: "it goes when its time has come: fleetctl snapshot prune",
        write_failed=AtomicWriteFailed.kind,
        prune_failed=RetentionPruneFailed.kind,
    )
)
