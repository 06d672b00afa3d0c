"""A snapshot's document: what was written is read again, and nothing else is ever believed."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.domain.checkpoints.codec import canonical, digest_of
from fleetd.domain.snapshots import codec
from fleetd.protocol.errors import Corrupt, IntegrityMismatch, SchemaInvalid
from fleetd.protocol.snapshots import (
    CommandOutcome,
    ContextDigest,
    ResumeHints,
    SnapshotContent,
    StepState,
    TodoCompliance,
)

TEXTS = st.text(max_size=12)
NAMES = st.none() | TEXTS
VERDICTS = st.sampled_from(["PASS", "FAIL", "WARN"])
OUTCOMES = st.builds(
    CommandOutcome,
    kind=st.sampled_from(["shell", "slash_command", "tool_use"]),
    name=TEXTS,
    result=VERDICTS,
    duration_ms=st.integers(0, 2**53),
    reason_code=NAMES,
    summary=TEXTS,
)
CONTENTS = st.builds(
    SnapshotContent,
    snapshot_id=st.integers(0, 10**9).map(lambda seq: f"cp_20260105T120000000Z_{seq}"),
    created_at=st.just("2026-01-05T12:00:00.000Z"),
    run_id=st.from_regex(r"[a-z_][A-Za-z0-9._-]{0,10}", fullmatch=True),
    source=st.sampled_from(["step_boundary", "error_boundary", "timer", "manual"]),
    status=st.sampled_from(["in_progress", "failed", "completed", "paused"]),
    step_state=st.builds(
        StepState,
        plan_path=NAMES,
        step_id=NAMES,
        step_ordinal=st.none() | st.integers(1, 10**6),
        step_status=st.sampled_from([None, "pending", "in_progress", "done", "failed", "skipped"]),
        todo_compliance=st.builds(
            TodoCompliance, result=VERDICTS, violations=st.lists(TEXTS, max_size=2)
        ),
        resume_hints=st.builds(ResumeHints, next_actions=st.lists(TEXTS, max_size=2)),
    ),
    context_digest=st.builds(
        ContextDigest,
        window_pressure=st.sampled_from(["low", "medium", "high"]),
        protected_artifacts=st.lists(TEXTS, max_size=2),
        dropped_items=st.integers(0, 2**53),
    ),
    command_outcomes=st.lists(OUTCOMES, max_size=3),
)
PROPERTY = settings(derandomize=True, database=None, deadline=None, max_examples=150)


def row_of(content: SnapshotContent) -> dict[str, Any]:
    """Return a row as the store has it right after it was written."""
    beside = ("agent_id", "window_tokens", "window_size", "note", "backed_up_at", "compressed_at")
    return {
        **codec.to_columns(content),
        **dict.fromkeys((*beside, "gzip_digest", "gzip_bytes")),
        "source_details_json": "[]",
        "warnings_json": "[]",
    }


@PROPERTY
@given(CONTENTS)
def test_what_is_written_is_read_again_the_same(content: SnapshotContent) -> None:
    data = codec.to_file(codec.sealed(content))
    read = codec.from_file(data, "here")
    assert {name: getattr(read, name) for name in codec.CONTENT_FIELDS} == {
        name: getattr(content, name) for name in codec.CONTENT_FIELDS
    }
    assert codec.to_file(read) == data
    assert codec.from_row(row_of(content)).integrity == read.integrity
    assert codec.seq_of(read.snapshot_id) == row_of(content)["seq"]


@PROPERTY
@given(CONTENTS, st.data())
def test_a_damaged_byte_is_refused_and_never_another_snapshot(
    content: SnapshotContent, data: st.DataObject
) -> None:
    whole = codec.to_file(codec.sealed(content))
    place = data.draw(st.integers(0, len(whole) - 2))  # the line's end holds nothing
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    damaged = whole[:place] + bytes([byte]) + whole[place + 1 :]
    with pytest.raises(Corrupt) as caught:
        codec.from_file(damaged, "here")
    assert caught.value.kind in ("checkpoint_schema_invalid", "checkpoint_integrity_mismatch")


EXAMPLE = SnapshotContent(
    snapshot_id="cp_20260105T120000000Z_42",
    created_at="2026-01-05T12:00:00.000Z",
    run_id="build-42",
    source="manual",
    status="in_progress",
    step_state=StepState(
        plan_path="PLAN.md",
        step_id="3b",
        step_ordinal=4,
        step_status="done",
        todo_compliance=TodoCompliance(
            result="PASS", violations=[], checked_at="2026-01-05T12:00:00.000Z"
        ),
        resume_hints=ResumeHints(eligible=True, reason_code="resume_ready", next_actions=["A"]),
    ),
    context_digest=ContextDigest(
        window_pressure="low", protected_artifacts=[], dropped_items=0, policy_profile="default"
    ),
    command_outcomes=[],
)


def changed(**changes: Any) -> bytes:
    """Return the example with other fields, None for none, and a checksum that vouches for it."""
    whole = json.loads(codec.to_file(codec.sealed(EXAMPLE)))
    integrity = whole.pop("integrity") | changes.pop("integrity", {})
    whole = {name: value for name, value in (whole | changes).items() if value is not None}
    integrity = {"digest": digest_of(canonical(whole))} | {
        name: value for name, value in integrity.items() if name != "digest"
    }
    return msgspec.json.encode(whole | {"integrity": integrity})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        codec.to_file(codec.sealed(EXAMPLE))[:-20],
        changed(status="resting"),
        changed(status=None),
        changed(run_id="../etc"),
        changed(run_id="msn-1a2b3c4d"),
        changed(snapshot_id="chk-1"),
        changed(snapshot_id="cp_1_2\n"),
        changed(created_at="2026-01-05T12:00:00Z"),
        changed(created_at="noon"),
        changed(more="fields"),
        changed(context_digest={"window_pressure": "low"}),
        changed(command_outcomes=[{"kind": "shell"}]),
        changed(integrity={"format_version": 2}),
        changed(integrity={"format_version": "1"}),
        changed(integrity={"algorithm": "crc32"}),
        changed(integrity={"salt": "x"}),
    ],
)
def test_parser_and_validation_errors_have_the_reason_code_checkpoint_schema_invalid(
    data: bytes,
) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        codec.from_file(data, "/checkpoints/build-42/history/x.json")
    error = caught.value
    assert error.kind == "checkpoint_schema_invalid"
    assert error.message.startswith("The snapshot file /checkpoints/build-42/history/x.json is not")
    assert error.values["path"] == "/checkpoints/build-42/history/x.json"
    assert "fleetctl snapshot verify --repair" in error.hint


def test_an_unknown_format_version_is_named(tmp_path: Any) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        codec.from_file(changed(integrity={"format_version": 2}), "here")
    assert (
        "format version is 2 with sha256; this fleetd reads 1 with sha256" in caught.value.message
    )


def test_another_content_has_the_reason_code_checkpoint_integrity_mismatch() -> None:
    data = codec.to_file(codec.sealed(EXAMPLE)).replace(b"PLAN.md", b"PLAN.MD")
    with pytest.raises(IntegrityMismatch) as caught:
        codec.from_file(data, "here")
    assert caught.value.kind == "checkpoint_integrity_mismatch"
    assert caught.value.message == "The snapshot file here does not match its checksum."


@pytest.mark.parametrize(
    "column",
    [
        *("run_id", "timestamp", "source", "status", "step_id", "step_status", "window_pressure"),
        *("digest", "version", "file_digest", "seq", "step_ordinal", "outcome_count", "size_bytes"),
    ],
)
def test_a_row_that_says_something_else_than_its_document_is_damaged(column: str) -> None:
    row = row_of(EXAMPLE) | {column: "7"}
    with pytest.raises(IntegrityMismatch) as caught:
        codec.from_row(row)
    assert caught.value.values["snapshot_id"] == EXAMPLE.snapshot_id
    assert "The database row of snapshot cp_20260105T120000000Z_42 " in caught.value.message
    assert f"fleetctl snapshot verify {EXAMPLE.snapshot_id} --repair" in caught.value.hint


@pytest.mark.parametrize("column", ["document_json", "source_details_json", "warnings_json"])
def test_a_row_that_cannot_be_read_is_no_snapshot(column: str) -> None:
    with pytest.raises(SchemaInvalid):
        codec.from_row(row_of(EXAMPLE) | {column: "{"})


@pytest.mark.parametrize(
    ("snapshot_id", "seq"),
    [("cp_20260105T120000000Z_42", 42), ("cp_1_a7", 0), ("cp_1_" + "9" * 32, 0), ("cp_1_٣", 0)],
)
def test_an_id_tells_its_place_in_the_log_where_it_is_one_of_ours(
    snapshot_id: str, seq: int
) -> None:
    assert codec.seq_of(snapshot_id) == seq


def test_the_artifacts_are_the_plain_file_and_once_it_was_compressed_both_forms() -> None:
    row = row_of(EXAMPLE)
    assert [(each.path, each.present) for each in codec.from_row(row).artifacts] == [
        ("history/cp_20260105T120000000Z_42.json", False)
    ]
    assert codec.from_row(row).storage_locations == ["sqlite"]
    written = row | {"backed_up_at": "2026-01-05T12:00:01.000Z"}
    [plain] = codec.from_row(written).artifacts
    assert (plain.present, plain.size_bytes) == (True, row["size_bytes"])
    assert codec.from_row(written).storage_locations == ["sqlite", "file"]
    packed = {"compressed_at": "2026-01-06T12:00:01.000Z", "gzip_digest": "ab", "gzip_bytes": 7}
    both = codec.from_row(written | packed).artifacts
    assert [(each.path, each.present, each.digest) for each in both] == [
        ("history/cp_20260105T120000000Z_42.json", False, row["file_digest"]),
        ("history/cp_20260105T120000000Z_42.json.gz", True, "ab"),
    ]
