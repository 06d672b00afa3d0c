"""The migration scenarios of the specification, each under its number, and what surrounds them."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fleetd.engine.jobs.daily import tidy
from fleetd.protocol.errors import Storage
from fleetd.protocol.records import Event
from fleetd.protocol.requests.agent import AgentGet
from fleetd.protocol.requests.event import CursorGet
from fleetd.protocol.requests.lock import LockAcquire, LockCheck
from fleetd.store.legacy import LegacyFile, LegacyRefused
from tests.support.fleet import DAY, MINUTE, Clock, Fleet, opened
from tests.support.legacy_store import beside, event
from tests.support.processes import Daemon, fleetctl

SINCE = {"created_at": "2026-01-05T09:00:00.000Z", "updated_at": "2026-01-05T10:00:00.000Z"}


def lock(file: str, holder: str, **more: Any) -> dict[str, Any]:
    """Return a lock that was taken five seconds before the clock of the tests begins."""
    return {
        "id": "lock_1",
        "file": file,
        "reserved_by": holder,
        "reserved_at": "2026-01-05T11:59:55.000Z",
        "released_at": None,
        "timeout_ms": 30_000,
        "purpose": "edit",
        **more,
    }


FULL: dict[str, Any] = {
    "mailboxes": {"specialist-1": {"id": "specialist-1", **SINCE}, "dispatch": {"id": "dispatch"}},
    "events": {
        "specialist-1": [
            event("task_started", 1, id="evt_1", data={"task": "parse"}),
            event("task_progress", 4, id="evt_2", data={"percent": 50}),
        ],
        "dispatch": [event("task_assigned", 2, data={"to": "specialist-1"})],
    },
    "cursors": {"specialist-1_cursor": {"stream_id": "specialist-1", "position": 1}},
    "locks": {"lock_1": lock("/repo/src/a.ts", "specialist-1")},
}


def imported(fleet: Fleet) -> list[tuple[str, str]]:
    """Return agent and type of every event that was imported, in order."""
    rows = fleet.sql(
        "SELECT agent_id, type FROM events"
        " WHERE type NOT IN ('lock_acquired', 'legacy_imported') ORDER BY seq"
    )
    return [(row["agent_id"], row["type"]) for row in rows]


async def history(fleet: Fleet) -> list[Event]:
    """Return every event but the one that announces the import."""
    return [each for each in await fleet.events() if each.type != "legacy_imported"]


async def position(fleet: Fleet, mailbox: str) -> int:
    return (await fleet.do(CursorGet("legacy", f"agent:{mailbox}"))).position


@pytest.mark.parametrize(
    "content",
    [{}, {"mailboxes": {}, "events": {}, "cursors": {}, "locks": {}}, {"events": None}],
    ids=["nothing", "empty maps", "null"],
)
async def test_migration_1_empty_json_file(
    tmp_path: Path, content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fleetd")
    file = beside(tmp_path, content)
    async with opened(tmp_path) as fleet:
        assert await history(fleet) == []
    assert not file.exists()
    assert file.with_name("squawk.json.backup").read_text() == json.dumps(content)
    assert "Imported 0 mailboxes, 0 events, 0 cursors, 0 active locks" in caplog.text


async def test_migration_2_mailboxes_events_cursors_locks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fleetd")
    file = beside(tmp_path, FULL)
    async with opened(tmp_path) as fleet:
        agent = (await fleet.do(AgentGet("specialist-1"))).status
        (held,) = await fleet.locks()
        found = [(e.agent_id, e.type) for e in await history(fleet)]
    assert agent == "idle"
    assert found == [
        ("specialist-1", "task_started"),
        ("dispatch", "task_assigned"),
        ("specialist-1", "task_progress"),
        ("specialist-1", "lock_acquired"),
    ]
    assert (held.file, held.held_by) == ("/repo/src/a.ts", "specialist-1")
    assert not file.exists()
    assert (
        f"Imported 2 mailboxes, 3 events, 1 cursor, 1 active lock; {file} is now "
        "squawk.json.backup" in caplog.text
    )


CORRUPT: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "at byte 0, line 1: Expecting value"),
    "cut": (b'{"events": {"a": [{"type": "x', "at byte 27, line 1: Unterminated string"),
    "cut after an umlaut": ('{"ä": '.encode(), "at byte 7, line 1: Expecting value"),
    "not JSON": (b"mailboxes: {}", "at byte 0"),
    "two documents": (b"{}{}", "at byte 2, line 1: Extra data"),
    "not UTF-8": (b'{"mailboxes": {"\xff": {}}}', "at byte 16: not UTF-8"),
    "UTF-16": ('{"mailboxes": {}}'.encode("utf-16"), "at byte 0: not UTF-8"),
    "a list": (b"[]", "at $: expected an object, got an array"),
    "null": (b"null", "at $: expected an object, got null"),
    "another file": (b'{"name": "x"}', "at $: it has none of the sections"),
    "NaN": (b'{"events": {"a": [{"type": "t", "data": NaN}]}}', "at $.events.a[0].data: NaN is"),
    "infinity": (b'{"events": {"a": [{"type": "t", "data": [1e999]}]}}', "$.events.a[0].data[0]"),
    "a key twice": (b'{"mailboxes": {"a": {}, "a": {}}}', 'at $.mailboxes: the key "a" appears tw'),
    "a section twice": (b'{"locks": {}, "locks": {}}', 'at $: the key "locks" appears twice'),
    "deep": (b'{"events": {"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}", "nests deeper than 100"),
    "fairly deep": (
        b'{"events": {"a": [{"type": "t", "data": ' + b"[" * 100 + b"]" * 100 + b"}]}}",
        "nests deeper than 100",
    ),
    "mailboxes a list": (b'{"mailboxes": []}', "at $.mailboxes: expected an object, got an array"),
    "a mailbox a string": (b'{"mailboxes": {"a b": "x"}}', 'at $.mailboxes["a b"]: expected an o'),
    "events a string": (
        b'{"events": {"a": "x"}}',
        "at $.events.a: expected an array, got a string",
    ),
    "events null": (b'{"events": {"a": null}}', "at $.events.a: expected an array, got null"),
    "an event a number": (b'{"events": {"a": [{"type": "t"}, 3]}}', "at $.events.a[1]: expected"),
    "a type a number": (
        b'{"events": {"a": [{"type": 3}]}}',
        "at $.events.a[0].type: expected a str",
    ),
    "no type": (b'{"events": {"a": [{"data": {}}]}}', "at $.events.a[0]: type is missing"),
    "no time": (
        b'{"events": {"a": [{"type": "t", "occurred_at": "today"}]}}',
        'at $.events.a[0].occurred_at: "today" is not a time',
    ),
    "no day": (
        b'{"events": {"a": [{"type": "t", "timestamp": "2026-02-30T10:00:00.000Z"}]}}',
        "at $.events.a[0].timestamp",
    ),
    "before 1970": (b'{"mailboxes": {"a": {"created_at": -1}}}', "at $.mailboxes.a.created_at: -1"),
    "a truth": (b'{"mailboxes": {"a": {"created_at": true}}}', "at $.mailboxes.a.created_at"),
    "a cursor without position": (b'{"cursors": {"a": {}}}', "at $.cursors.a: position is missing"),
    "a position in words": (b'{"cursors": {"a": {"position": "1"}}}', "at $.cursors.a.position"),
    "a negative position": (b'{"cursors": {"a": {"position": -1}}}', "at $.cursors.a.position"),
    "a lock without file": (
        b'{"locks": {"l": {"reserved_by": "a"}}}',
        "at $.locks.l: file is missi",
    ),
    "a file with NUL": (
        b'{"locks": {"l": {"reserved_by": "a", "file": "/\\u0000"}}}',
        "at $.locks.l.file",
    ),
    "a lock of nobody": (
        b'{"locks": {"l": {"file": "/a"}}}',
        "at $.locks.l: reserved_by is missing",
    ),
    "a length in words": (
        b'{"locks": {"l": {"file": "/a", "reserved_by": "a", "timeout_ms": "1"}}}',
        "at $.locks.l.timeout_ms",
    ),
}


@pytest.mark.parametrize("name", CORRUPT)
async def test_migration_3_corrupted_json(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    content, where = CORRUPT[name]
    file = beside(tmp_path, content)
    async with opened(tmp_path) as fleet:
        await fleet.mission(1)
        assert await fleet.locks() == []
        assert fleet.sql("SELECT * FROM agents") == []
        assert fleet.sql("SELECT * FROM cursors") == []
        assert {e.stream.partition(":")[0] for e in await history(fleet)} == {"mission"}
    assert file.read_bytes() == content
    assert [path.name for path in file.parent.glob("squawk.json*")] == ["squawk.json"]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"{file} was not imported and stays in place: ")
    assert where in warning
    assert warning.endswith("Correct it or move it away, then start fleetd again.")


async def test_migration_4_no_json_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fleetd")
    async with opened(tmp_path) as fleet:
        assert await history(fleet) == []
    assert list((tmp_path / "data").glob("*.json*")) == []
    assert caplog.text == ""


async def test_migration_5_all_data_migrated_correctly(tmp_path: Path) -> None:
    beside(tmp_path, FULL)
    async with opened(tmp_path) as fleet:
        (agent,) = fleet.sql("SELECT * FROM agents WHERE id = 'specialist-1'")
        assert (agent["role"], agent["status"], agent["pid"]) == ("specialist", "idle", None)
        assert agent["registered_at"] == SINCE["created_at"]
        assert agent["last_seen_at"] == SINCE["updated_at"]
        first, second, third, _ = await history(fleet)
        assert [e.timestamp[14:16] for e in (first, second, third)] == ["01", "02", "04"]
        assert (first.stream, first.mission_id) == ("agent:specialist-1", None)
        assert first.data == {"task": "parse", "legacy": {"id": "evt_1"}}
        assert second.data == {"to": "specialist-1"}
        assert fleet.sql("SELECT seq FROM events WHERE activity = 1") == []
        assert await position(fleet, "specialist-1") == first.seq
        (held,) = await fleet.locks()
        assert (held.acquired_at, held.expires_at, held.timeout_ms, held.purpose) == (
            "2026-01-05T11:59:55.000Z",
            "2026-01-05T12:00:25.000Z",
            30_000,
            "edit",
        )
        check = LockCheck("/repo/src/a.ts", held.fencing_token)
        assert (await fleet.do(check)).valid
        fleet.clock.pass_by(MINUTE)
        newer = await fleet.do(LockAcquire("specialist-2", "/repo/src/a.ts"))
        assert newer.fencing_token > held.fencing_token


def test_a_daemon_imports_the_file_once(home: Path) -> None:
    """A real process, started twice, and the command line sees what was imported."""
    file = home / "data" / "squawk.json"
    file.write_text(json.dumps(FULL))
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    for _ in range(2):
        running.start()
        try:
            events = fleetctl("events", "--json").json
            agents = fleetctl("agent", "list", "--json").json
        finally:
            running.stop()
        assert [e["type"] for e in events] == [
            "legacy_imported",
            "task_started",
            "task_assigned",
            "task_progress",
        ]
        assert [a["id"] for a in agents] == ["dispatch", "specialist-1"]
    assert running.log.read_text().count("Imported 2 mailboxes, 3 events, 1 cursor") == 1
    assert "Locks of squawk.json that had expired, not imported: /repo/src/a.ts" in (
        running.log.read_text()
    )
    assert json.loads(file.with_name("squawk.json.backup").read_text()) == FULL
    assert not file.exists()


async def test_imported_events_are_as_young_as_their_import(tmp_path: Path) -> None:
    beside(tmp_path, FULL)
    async with opened(tmp_path) as fleet:
        fleet.clock.pass_by(29 * DAY)
        assert await position(fleet, "specialist-1")
        await tidy(fleet.engine)
        assert len(await history(fleet)) == 4  # with that of the lock
        fleet.clock.pass_by(2 * DAY)
        await fleet.mission()
        await tidy(fleet.engine)
        # What a cursor that somebody reads has not come to yet is needed.
        left = [e.type for e in await history(fleet) if e.agent_id]
        assert left == ["task_progress", "lock_acquired"]


async def test_what_was_committed_and_not_renamed_is_not_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon may die between the two; a refused rename leaves the same behind."""
    caplog.set_level("INFO", "fleetd")
    file = beside(tmp_path, FULL)

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        async with opened(tmp_path) as fleet:
            before = fleet.dump()
    assert f"{file} was imported but could not be renamed (Permission denied)" in caplog.text
    assert file.exists()
    caplog.clear()
    async with opened(tmp_path) as fleet:
        assert fleet.dump() == before
    assert f"The file was imported before; {file} is now squawk.json.backup" in caplog.text
    assert not file.exists()


async def test_a_break_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        before = fleet.dump()
    file = beside(tmp_path, FULL)
    monkeypatch.setattr("fleetd.domain.system.legacy_import._locks", lambda *_: _full_disk())
    async with opened(tmp_path) as fleet:
        assert fleet.dump() == before
    assert file.exists()
    assert f"{file} was not imported and stays in place: The disk is full" in caplog.text
    monkeypatch.undo()
    async with opened(tmp_path) as fleet:
        assert len(imported(fleet)) == 3
    assert not file.exists()


def _full_disk() -> int:
    raise Storage("The disk is full; nothing was stored.")


async def test_counts_that_differ_take_everything_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger stands for whatever might lose a row; a start would refuse it otherwise."""
    monkeypatch.setattr("fleetd.store.sqlite.integrity_check.differences", lambda *_: [])
    async with opened(tmp_path) as fleet:
        fleet.sql(
            "CREATE TRIGGER thief AFTER INSERT ON events WHEN new.type = 'task_progress'"
            " BEGIN DELETE FROM events WHERE seq = new.seq; END"
        )
    file = beside(tmp_path, FULL)
    async with opened(tmp_path) as fleet:
        assert fleet.sql("SELECT * FROM events") == []
        assert fleet.sql("SELECT * FROM agents") == []
    assert file.exists()
    assert "3 events had to be stored, only 2 were" in caplog.text


async def test_a_name_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    for content in (FULL, {"mailboxes": {"late": {}}}, {}):
        file = beside(tmp_path, content)
        async with opened(tmp_path):
            pass
    names = ["squawk.json.backup", "squawk.json.backup.1", "squawk.json.backup.2"]
    found = [json.loads((file.parent / name).read_text()) for name in names]
    assert found == [FULL, {"mailboxes": {"late": {}}}, {}]


async def test_a_dangling_link_at_the_new_name_is_left_alone(tmp_path: Path) -> None:
    file = beside(tmp_path, FULL)
    link = file.with_name("squawk.json.backup")
    link.symlink_to("nowhere")
    async with opened(tmp_path):
        pass
    assert link.is_symlink()
    assert file.with_name("squawk.json.backup.1").is_file()


async def test_the_backup_is_as_private_as_the_database(tmp_path: Path) -> None:
    file = beside(tmp_path, FULL)
    file.chmod(0o644)
    async with opened(tmp_path):
        pass
    assert stat.S_IMODE(file.with_name("squawk.json.backup").stat().st_mode) == 0o600


async def test_a_backup_that_cannot_be_made_private_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, real = beside(tmp_path, FULL), os.chmod
    file.chmod(0o644)

    def refuse(path: Any, *args: Any, **more: Any) -> None:
        if path == file:
            raise PermissionError(1, "Operation not permitted")
        real(path, *args, **more)

    monkeypatch.setattr(os, "chmod", refuse)
    async with opened(tmp_path) as fleet:
        assert len(await history(fleet)) == 4
    backup = file.with_name("squawk.json.backup")
    assert json.loads(backup.read_text()) == FULL
    assert f"{backup} is readable by other users (Operation not permitted)" in caplog.text


async def test_a_file_that_was_not_imported_keeps_its_mode(tmp_path: Path) -> None:
    file = beside(tmp_path, b"{")
    file.chmod(0o644)
    async with opened(tmp_path):
        pass
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def directory(file: Path) -> None:
    file.mkdir()


def fifo(file: Path) -> None:
    os.mkfifo(file)


def symlink(file: Path) -> None:
    target = file.with_name("real.json")
    target.write_text(json.dumps(FULL))
    file.symlink_to(target)


def too_large(file: Path) -> None:
    with file.open("wb") as large:
        large.truncate(64 * 1024 * 1024 + 1)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (directory, "it is not a regular file"),
        (fifo, "it is not a regular file"),
        (symlink, "it is a symbolic link"),
        (too_large, "it is larger than 67108864 bytes"),
    ],
)
async def test_what_is_no_file_of_sane_size_stays_with_a_warning(
    tmp_path: Path, make: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "data" / "squawk.json"
    file.parent.mkdir()
    make(file)
    kind = file.lstat().st_mode
    async with opened(tmp_path) as fleet:
        assert await history(fleet) == []
    assert file.lstat().st_mode == kind
    assert f"{file} was not imported and stays in place: {why}" in caplog.text


async def test_a_file_that_may_not_be_read_stays_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, real = beside(tmp_path, FULL), os.open

    def refuse(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    async with opened(tmp_path) as fleet:
        assert await history(fleet) == []
    assert f"{file} was not imported and stays in place: Permission denied" in caplog.text


@pytest.mark.sqlite_only("the database is a file")
def test_a_database_of_that_name_is_not_taken_for_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_DB_PATH", str(home / "data" / "squawk.json"))
    running = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log")
    running.start()
    running.stop()
    assert "imported" not in running.log.read_text()
    assert (home / "data" / "squawk.json").read_bytes().startswith(b"SQLite format 3")


def test_a_file_that_changed_meanwhile_is_not_renamed(tmp_path: Path) -> None:
    path = beside(tmp_path, FULL)
    file = LegacyFile(path)
    assert file.read() == path.read_bytes()
    path.write_text(json.dumps({}))
    with pytest.raises(LegacyRefused, match="it changed during the import"):
        file.put_away()
    assert path.exists()


async def test_a_cursor_stands_at_the_nth_event_of_its_mailbox(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = {
        "a": [event("one", 1), event("three", 3), event("five", 5)],
        "b": [event("two", 2), event("four", 4)],
    }
    cursors = {
        "a": {"position": 2},
        "x": {"mailbox_id": "b", "position": 1, "consumer_id": "ui"},
        "y": {"stream_id": "b", "position": 2},
        "none": {"position": 0},
        "c": {"position": 7},
    }
    beside(tmp_path, {"events": events, "cursors": cursors})
    async with opened(tmp_path) as fleet:
        seqs = {e.type: e.seq for e in await history(fleet)}
        assert await position(fleet, "a") == seqs["three"]
        assert await position(fleet, "b") == seqs["two"]
        assert await position(fleet, "none") == 0
        assert await position(fleet, "c") == 0
    assert "several cursors, of which the one behind counts: b" in caplog.text
    assert "Cursors beyond the last event of their mailbox: c" in caplog.text


async def test_events_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    events = {
        "a": [event("late", 9), event("early", 1), event("tie_one", 5), event("tie_two", 5)],
        "b": [
            {"type": "tie_three", "timestamp": 1_767_607_500_000},
            {"type": "zoned", "timestamp": "2026-01-05T11:02:00+01:00"},
            {"type": "beside"},
        ],
        "c": [{"type": "at_its_beginning"}, {"type": "and_after"}],
    }
    beside(tmp_path, {"mailboxes": {"c": SINCE}, "events": events})
    async with opened(tmp_path) as fleet:
        found = [(e.type, e.timestamp[11:16]) for e in await history(fleet)]
    assert found == [
        ("at_its_beginning", "09:00"),
        ("and_after", "09:00"),
        ("early", "10:01"),
        ("zoned", "10:02"),
        ("beside", "10:02"),
        ("tie_one", "10:05"),
        ("tie_two", "10:05"),
        ("tie_three", "10:05"),
        ("late", "10:09"),
    ]


async def test_what_has_no_place_of_its_own_is_kept_in_the_data(tmp_path: Path) -> None:
    events = [
        event("task.Done", 1, id=7, data={"n": 1}, causation_id="evt_0", metadata={"k": "v"}),
        event("taskProgress", 2, data='{"percent": 50}'),
        event("9!", 3, data="plain words"),
        event("tool", 4, data={"legacy": True}, id="x", stream_id="a", timestamp=5),
        event("big", 5, data={"n": 10**30, "half": "\ud83d", "exact": 2**63}),
        event("context_compacted", 6),
        event("broken", 7, data="{broken", stream_id="b"),
    ]
    beside(tmp_path, {"events": {"a": events}})
    async with opened(tmp_path) as fleet:
        found = {e.type: e.data for e in await history(fleet)}
    assert found == {
        "task_done": {
            "n": 1,
            "legacy": {
                "type": "task.Done",
                "id": 7,
                "causation_id": "evt_0",
                "metadata": {"k": "v"},
            },
        },
        "task_progress": {"percent": 50, "legacy": {"type": "taskProgress"}},
        "legacy_9": {"value": "plain words", "legacy": {"type": "9!"}},
        "tool": {"value": {"legacy": True}, "legacy": {"id": "x", "timestamp": 5}},
        "big": {"n": 1e30, "half": "\\ud83d", "exact": 2**63},
        "context_compacted": {},
        "broken": {"value": "{broken", "legacy": {"stream_id": "b"}},
    }


async def test_secrets_in_old_texts_are_replaced(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    events = [
        event("command_run", 1, data={"line": f"curl -H 'Authorization: Bearer {token}'"}),
        event("hello", 2, metadata={"password": "correct horse"}, data={"commit": "a97b2ba"}),
    ]
    locks = {"l": lock("/a", "a", purpose=f"push with {token}")}
    beside(tmp_path, {"events": {"a": events}, "locks": locks})
    async with opened(tmp_path) as fleet:
        found = [
            row["data_json"]
            for row in fleet.sql("SELECT data_json FROM events WHERE type <> 'legacy_imported'")
        ]
        (held,) = await fleet.locks()
    assert len(found) == 3
    assert token not in "".join([*found, held.purpose])
    assert "correct horse" not in "".join(found)
    assert "a97b2ba" in found[1]


async def test_names_that_no_agent_may_have_are_mapped_the_same_way_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "Ünser Agent/1"
    beside(
        tmp_path,
        {
            "mailboxes": {name: {}, "": {}},
            "events": {name: [event("hello", 1)]},
            "cursors": {"c": {"stream_id": name, "position": 1}},
            "locks": {"l": lock("/a", name)},
        },
    )
    async with opened(tmp_path) as fleet:
        ids = [row["id"] for row in fleet.sql("SELECT id FROM agents ORDER BY id")]
        (hello, _) = await history(fleet)
        assert ids == ["mailbox-e3b0c44298fc", hello.agent_id]
        assert hello.agent_id.startswith("nser_Agent_1-")
        assert await position(fleet, hello.agent_id) == hello.seq
        assert [held.held_by for held in await fleet.locks()] == [hello.agent_id]
    assert f"whose names no agent may have: 'Ünser Agent/1' is {hello.agent_id}" in caplog.text


async def test_two_names_never_become_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = beside(tmp_path, {"mailboxes": {"": {}, "mailbox-e3b0c44298fc": {}}})
    async with opened(tmp_path) as fleet:
        assert fleet.sql("SELECT * FROM agents") == []
    assert file.exists()
    assert "2 mailboxes had to be stored, only 1 were" in caplog.text


async def test_only_locks_that_still_hold_are_imported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fleetd")
    long_ago = "2026-01-05T11:00:00.000Z"
    locks = {
        "held": lock("/held", "a"),
        "twice": lock("/held", "b"),
        "released": lock("/released", "a", released_at=long_ago),
        "status": {"file": "/s", "status": "released"},
        "expired": lock("/expired", "a", reserved_at=long_ago),
        "at its end": lock("/end", "a", reserved_at="2026-01-05T11:59:30.000Z"),
        "still": lock("/still", "a", reserved_at=long_ago, expires_at="2026-01-05T12:01:00.000Z"),
        "undated": {"file": "/undated", "specialist_id": "a"},
        "from the future": lock("/future", "a", reserved_at="2030-01-01T00:00:00.000Z"),
        "for ever": lock("/ever", "a", timeout_ms=10**15),
        "relative": lock("src/a.ts", "a"),
    }
    beside(tmp_path, {"locks": locks})
    async with opened(tmp_path) as fleet:
        found = {held.file: held for held in await fleet.locks()}
    assert {file: held.expires_at for file, held in found.items()} == {
        "/held": "2026-01-05T12:00:25.000Z",
        "/still": "2026-01-05T12:01:00.000Z",
        "/undated": "2026-01-05T12:00:30.000Z",
        "/future": "2026-01-05T12:00:30.000Z",
        "/ever": "2026-01-12T12:00:00.000Z",
        "src/a.ts": "2026-01-05T12:00:25.000Z",
    }
    assert found["/held"].held_by == "a"
    assert len({held.fencing_token for held in found.values()}) == 6
    assert "had expired, not imported: /expired (a), /end (a)" in caplog.text
    assert "locked already, not imported: /held (b)" in caplog.text
    assert "relative paths, which guard no real file: src/a.ts (a)" in caplog.text
    assert "6 active locks, left out 5 locks" in caplog.text


async def test_paths_of_locks_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    beside(tmp_path, {"locks": {"l": lock(f"{tmp_path}/link/../link//a.ts", "a")}})
    async with opened(tmp_path) as fleet:
        (held,) = await fleet.locks()
    assert held.normalized_path.endswith(str((tmp_path / "real").resolve() / "a.ts"))


async def test_what_is_here_already_is_left_as_it_is(tmp_path: Path) -> None:
    """A store that was in use: its agent stays active, its lock stays held, its log goes on."""
    clock = Clock()
    async with opened(tmp_path, clock=clock) as fleet:
        mission = await fleet.mission(1)
        await fleet.agents(mission, "specialist-1")
        ours = await fleet.lock(mission, "/repo/src/a.ts", "specialist-2")
        before = await history(fleet)
        known = await fleet.do(AgentGet("specialist-1"))
        silent = (await fleet.again(mission)).last_activity_at
    clock.pass_by(MINUTE)
    beside(tmp_path, FULL)
    async with opened(tmp_path, clock=clock) as fleet:
        assert await fleet.do(AgentGet("specialist-1")) == known
        assert await fleet.locks() == [ours]
        assert (await fleet.again(mission)).last_activity_at == silent
        events = await history(fleet)
        assert events[: len(before)] == before
        assert [e.type for e in events[len(before) :]] == [
            "task_started",
            "task_assigned",
            "task_progress",
        ]
        assert (
            await position(fleet, "specialist-1") == before[-1].seq + 2
        )  # behind the one that announces it


async def test_a_second_file_never_moves_a_cursor_back(tmp_path: Path) -> None:
    beside(tmp_path, FULL)
    async with opened(tmp_path) as fleet:
        before = await position(fleet, "specialist-1")
    beside(tmp_path, {"cursors": {"specialist-1": {"position": 0}}})
    async with opened(tmp_path) as fleet:
        assert await position(fleet, "specialist-1") == before


async def test_sections_of_unknown_meaning_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beside(tmp_path, {**FULL, "version": 2})
    async with opened(tmp_path) as fleet:
        assert len(imported(fleet)) == 3
    assert "Sections of squawk.json that were not imported: version" in caplog.text
