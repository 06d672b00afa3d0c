"""Whatever JSON lies in squawk.json: it is imported whole, or nothing of it is and it stays."""

import contextlib
import json
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.domain.system.legacy_import import agent_name
from fleetd.store import legacy
from fleetd.store.legacy import LegacyRefused, parse
from tests.support.fleet import opened

NAMES = st.sampled_from(["a", "b", "specialist-1", "A b", "", "Ünser"]) | st.text(max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
TIMES = st.sampled_from(["2026-01-05T11:59:59.000Z", "2025-06-01", 1_767_607_500_000, None])
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["hello", "task.Done", "", "X", "context_compacted"]) | st.text()},
    optional={"data": ANYTHING, "occurred_at": TIMES, "id": ANYTHING, "legacy": ANYTHING},
)
CURSORS = st.fixed_dictionaries(
    {"position": st.integers(0, 5)}, optional={"stream_id": NAMES, "mailbox_id": NAMES}
)
LOCKS = st.fixed_dictionaries(
    {"file": st.sampled_from(["/a", "/b", "c/d", "~/e"]), "reserved_by": NAMES},
    optional={
        "reserved_at": TIMES,
        "timeout_ms": st.integers(0, 10**12),
        "released_at": TIMES,
        "purpose": st.text(max_size=5),
    },
)
SOUND = st.fixed_dictionaries(
    {},
    optional={
        "mailboxes": st.dictionaries(
            NAMES, st.fixed_dictionaries({}, optional={"created_at": TIMES, "id": ANYTHING})
        ),
        "events": st.dictionaries(NAMES, st.lists(EVENTS, max_size=4), max_size=4),
        "cursors": st.dictionaries(NAMES, CURSORS, max_size=4),
        "locks": st.dictionaries(NAMES, LOCKS, max_size=4),
    },
)
SECTION = st.sampled_from(["mailboxes", "events", "cursors", "locks", "else"])
UNSOUND = st.dictionaries(SECTION, st.dictionaries(NAMES, ANYTHING) | ANYTHING) | ANYTHING


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
@given(document=SOUND | UNSOUND)
def test_any_document_is_imported_whole_or_not_at_all(document: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(_import, Path(directory), document)


WHOLE = json.dumps(
    {
        "mailboxes": {"a": {"created_at": "2026-01-05T11:59:59.000Z"}},
        "events": {"a": [{"type": "hello", "data": {"n": [1, 2.5, "\ud83d\ude00"]}, "id": 1}]},
        "cursors": {"a": {"position": 1}},
        "locks": {"l": {"file": "/a", "reserved_by": "a", "timeout_ms": 5}},
    }
).encode()
PLACES = st.integers(0, len(WHOLE))


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(start=PLACES, end=PLACES, between=st.binary(max_size=3) | st.sampled_from([b"1e999", b"{"]))
def test_any_bytes_are_read_or_refused(start: int, end: int, between: bytes) -> None:
    data = WHOLE[:start] + between + WHOLE[end:]
    with contextlib.suppress(LegacyRefused):
        parse(data, "digest", lambda path: path)


async def _import(root: Path, document: Any) -> None:
    file = root / "data" / "squawk.json"
    content = json.dumps(document, ensure_ascii=len(str(document)) % 2 == 0).encode(
        "utf-8", "surrogatepass"
    )
    file.parent.mkdir()
    file.write_bytes(content)
    async with opened(root) as fleet:
        after = fleet.dump()
    backup = file.with_name("squawk.json.backup")
    if file.exists():
        assert not any(after[table] for table in ("agents", "events", "cursors", "locks"))
        assert [row["key"] for row in after["store_meta"] if row["key"].startswith("legacy")] == []
        assert file.read_bytes() == content
        assert not backup.exists()
    else:
        assert backup.read_bytes() == content
        _compare(document, after)


def _compare(document: dict[str, Any], stored: dict[str, list[dict[str, Any]]]) -> None:
    """Compare the counts of what was given and what is stored, by a way of our own."""
    mailboxes, events, cursors, locks = (
        document.get(name) or {} for name in ("mailboxes", "events", "cursors", "locks")
    )
    ids = {agent_name(name) for name in {*mailboxes, *events}}
    assert {row["id"] for row in stored["agents"]} == ids
    ours = ("lock_acquired", "legacy_imported")
    old = [row for row in stored["events"] if row["type"] not in ours]
    assert len(old) == sum(len(each) for each in events.values())
    assert [row["timestamp"] for row in old] == sorted(row["timestamp"] for row in old)
    assert all(row["activity"] == 0 and row["mission_id"] is None for row in stored["events"])
    read = {c.get("mailbox_id") or c.get("stream_id") or name for name, c in cursors.items()}
    assert {row["stream"] for row in stored["cursors"]} == {f"agent:{agent_name(r)}" for r in read}
    assert len(stored["locks"]) <= len({str(each.get("file")) for each in locks.values()})


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ANYTHING, st.sampled_from([None, 2]))
def test_what_is_read_at_once_is_what_a_closer_look_finds(
    document: Any, indent: int | None
) -> None:
    data = json.dumps(document, ensure_ascii=False, indent=indent).encode()

    at_once = legacy._at_once(data)

    assert at_once is None or at_once == legacy._Reader().read(data.decode())


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": "x", "b": {"c": [], "c": "\\""}}',
        '{"\\u0061": 1, "a": "\\u0022\\u0022"}',
        '["\\ud83d"]',
        "[1e999]",
        "[100000000000000000000]",
        "[NaN]",
        "[" * 102 + "]" * 102,
    ],
)
def test_what_is_doubtful_is_not_read_at_once(text: str) -> None:
    assert legacy._at_once(text.encode()) is None


OURS = st.datetimes(min_value=datetime(1900, 1, 1)).map(
    lambda at: f"{at.isoformat(timespec='milliseconds')}Z"
)
ODD = st.sampled_from(
    [
        *(None, 5, 1.5, "", "2023-02-29T00:00:00.000Z", "2025-01-01T24:00:00.000Z"),
        *("2025-01-01t00:00:00.000z", "2025-01-01T00:00:00.0000Z", "2025-01-01T00:00:00.00Z"),
        *("2025-01-01T00:00:60.000Z", "2025-01-01T00:00:00+00:00", "\u0662025-01-01T00:00:00.000Z"),
        *("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", "2025-13-01T00:00:00.000Z"),
    ]
)


@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(st.lists(OURS, max_size=4), st.lists(ODD, max_size=1), st.integers(0, 4))
def test_times_are_taken_together_as_they_are_taken_one_by_one(
    ours: list[Any], odd: list[Any], place: int
) -> None:
    times = [*ours[:place], *odd, *ours[place:]]

    def taken(time: Any) -> bool:
        with contextlib.suppress(LegacyRefused):
            return isinstance(time, str) and legacy._time(time, "events") == time
        return False

    assert legacy._are_ours(times) == all(map(taken, times))
