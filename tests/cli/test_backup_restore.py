"""A copy of the whole while others work, and its way back, with real processes and real files."""

import contextlib
import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import Incompatible
from fleetd.store.sqlite import page_checksums
from tests.support.processes import LOCKS, Daemon, Result, fleetctl


def ok(*argv: str) -> Result:
    done = fleetctl(*argv)
    assert done.status == 0, done
    return done


def call(daemon: Daemon, method: str, **params: Any) -> Any:
    with Fleet(daemon.socket) as client:
        return client.call_raw(method, params)


def make_mission(daemon: Daemon, title: str) -> str:
    sorties = [{"title": "One"}, {"title": "Two"}]
    made = call(daemon, "mission.create", title=title, sorties=sorties)
    call(daemon, "mission.start", mission_id=made["id"])
    return str(made["id"])


def checkpoint(daemon: Daemon, mission_id: str) -> str:
    return str(call(daemon, "checkpoint.create", mission_id=mission_id, created_by="t")["id"])


def titles(daemon: Daemon) -> set[str]:
    return {m["title"] for m in call(daemon, "mission.list", limit=1000)["missions"]}


@pytest.fixture
def stopped(daemon: Daemon) -> Iterator[Callable[[], None]]:
    """Return a function that stops the daemon; it runs again at the end, in good order."""

    def stop() -> None:
        daemon.stop()

    yield stop
    if daemon.process is None:
        daemon.start()


def snapshot(root: Path) -> dict[str, Any]:
    """Everything below a directory, but the lock files with their pid."""
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.lstat().st_mode),
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None,
        )
        for path in sorted(root.rglob("*"))
        if path.name not in LOCKS | {"daemon.log"}
    }


def test_a_copy_is_one_private_file_that_opens_alone(daemon: Daemon, home: Path) -> None:
    make_mission(daemon, "kept")
    said = ok("backup", "copy.db")
    copy = Path.cwd() / "copy.db"
    assert str(copy) in said.out
    assert os.listdir(copy.parent) == ["copy.db"]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    # The library that Python brings along opens it read-only: no WAL, no newer format.
    plain = sqlite3.connect(f"file:{copy}?mode=ro", uri=True)
    assert plain.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert plain.execute("SELECT title FROM missions").fetchall() == [("kept",)]
    plain.close()
    assert os.listdir(copy.parent) == ["copy.db"]


def test_a_large_copy_of_what_was_just_written_has_its_checksums(
    daemon: Daemon, home: Path
) -> None:
    """More than a page cache holds, and the newest of it in the write-ahead log only."""
    sorties = [{"title": f"Sortie {n}", "description": "x" * 600} for n in range(100)]
    with Fleet(daemon.socket) as client:
        mission = client.call_raw("mission.create", {"title": "m", "sorties": sorties})["id"]
        client.call_raw("mission.start", {"mission_id": mission})
        for n in range(3):
            for _ in range(40):
                said = {"mission_id": mission, "wait_for_backup": False}
                client.call_raw("checkpoint.create", said)
            copy = home / f"copy{n}.db"
            client.call_raw("system.backup", {"path": str(copy)})
            data = copy.read_bytes()
            assert len(data) > 3_000_000
            for start in range(0, len(data), 4_096):
                page = data[start : start + 4_096]
                assert page_checksums.sum_of(page[:-8]) == page[-8:]


def test_a_copy_as_json_names_path_and_size(daemon: Daemon, home: Path) -> None:
    copied = ok("backup", str(home / "copy.db"), "--json").json
    assert copied == {
        "path": str(home / "copy.db"),
        "size_bytes": (home / "copy.db").stat().st_size,
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [("taken", "exists already"), (".", "is a directory"), ("no/where", "no is no directory")],
)
def test_a_copy_overwrites_nothing_and_leaves_nothing(daemon: Daemon, name: str, said: str) -> None:
    Path("taken").write_text("precious")
    refused = fleetctl("backup", name)
    assert refused.status in (1, 2)
    assert said in refused.err
    assert "Hint: " in refused.err
    assert os.listdir() == ["taken"]
    assert Path("taken").read_text() == "precious"


def test_there_and_back_under_load(daemon: Daemon, home: Path, stopped: Callable[[], None]) -> None:
    mission = make_mission(daemon, "before")
    old = checkpoint(daemon, mission)
    epoch = call(daemon, "event.list")["epoch"]
    acknowledged: list[str] = []
    done = threading.Event()

    def keep_writing(number: int) -> None:
        with Fleet(daemon.socket) as client:
            count = 0
            while not done.is_set():
                title = f"w{number}-{count}"
                client.call_raw("mission.create", {"title": title})
                acknowledged.append(title)
                count += 1

    writers = [threading.Thread(target=keep_writing, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    while len(acknowledged) < 10:
        pass
    known = set(acknowledged)
    ok("backup", str(home / "copy.db"))
    done.set()
    for writer in writers:
        writer.join()

    lock = call(daemon, "lock.acquire", file="/x/a.py", agent_id="specialist-1")
    newer = checkpoint(daemon, mission)
    make_mission(daemon, "after")
    everything, end = titles(daemon), call(daemon, "event.list", since=0)["position"]
    stopped()

    said = ok("restore", str(home / "copy.db"), "--yes")
    daemon.start()
    restored = titles(daemon)
    assert known | {"before"} <= restored < everything
    page = call(daemon, "event.list", since=0, limit=1000)
    assert page["epoch"] != epoch
    assert page["events"][-1]["type"] == "store_restored"
    assert page["position"] > end
    with Fleet(daemon.socket) as client, pytest.raises(Incompatible, match="epoch"):
        client.call_raw("event.subscribe", {"since": end, "epoch": epoch})
    again = call(daemon, "lock.acquire", file="/x/a.py", agent_id="specialist-2")
    assert again["fencing_token"] > lock["fencing_token"]
    assert not call(daemon, "lock.check", file="/x/a.py", fencing_token=lock["fencing_token"])[
        "valid"
    ]
    _check_files(home, said, mission, old, newer)
    assert ok("checkpoints", "verify", "--all").status == 0
    assert titles(daemon) == restored


def _check_files(home: Path, said: Result, mission: str, old: str, newer: str) -> None:
    """The newer checkpoint lies aside and does not come back; the older one is where it was."""
    here = home / "flightline" / "checkpoints" / mission
    assert (here / f"{old}.json").is_file()
    assert not (here / f"{newer}.json").exists()
    assert os.readlink(here / "latest.json") == f"{old}.json"
    (aside,) = (home / "flightline").glob("replaced-*")
    assert (aside / "checkpoints" / mission / f"{newer}.json").is_file()
    (replaced,) = (home / "data").glob("replaced-*")
    assert os.listdir(replaced) == ["squawk.db"]
    for line in (str(replaced / "squawk.db"), str(aside / "checkpoints"), f"{newer}.json"):
        assert line in said.out


def test_what_a_restore_replaced_can_be_restored_also_after_a_crash(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    mission = make_mission(daemon, "first")
    ok("backup", str(home / "copy.db"))
    newer = [checkpoint(daemon, mission), checkpoint(daemon, make_mission(daemon, "second"))]
    files = {k: v for k, v in snapshot(home / "flightline").items() if k.endswith(".json")}
    rows = call(daemon, "checkpoint.list", mission_id=mission)["checkpoints"]
    daemon.kill()  # what was committed last lies in the WAL
    assert (home / "data" / "squawk.db-wal").stat().st_size > 0

    report = ok("restore", str(home / "copy.db"), "--yes", "--json").json
    assert len(report["moved"]) == 2
    daemon.start()
    assert titles(daemon) == {"first"}
    stopped()
    assert report["undo"] == f"fleetctl restore {report['replaced']}"
    ok("restore", report["replaced"], "--yes")
    daemon.start()
    assert titles(daemon) == {"first", "second"}
    assert call(daemon, "checkpoint.list", mission_id=mission)["checkpoints"] == rows
    ok("checkpoints", "verify", "--all")
    assert {
        k: v
        for k, v in snapshot(home / "flightline").items()
        if k.endswith(".json") and "replaced-" not in k
    } == files
    assert {call(daemon, "checkpoint.get", checkpoint_id=each)["id"] for each in newer} == set(
        newer
    )


def test_snapshots_newer_than_the_copy_lie_aside_and_latest_json_holds_the_newest_of_the_rest(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    old = call(daemon, "snapshot.record", run_id="run-1", note="old")["snapshot_id"]
    ok("backup", str(home / "copy.db"))
    new = call(daemon, "snapshot.record", run_id="run-1", status="paused")["snapshot_id"]
    alone = call(daemon, "snapshot.record", run_id="run-2")["snapshot_id"]
    run = home / "flightline" / "checkpoints" / "run-1"
    (run / "history" / f"{old}.json").unlink()
    stopped()

    report = ok("restore", str(home / "copy.db"), "--yes", "--json").json
    assert [Path(path).name for path in report["moved"]] == [f"{new}.json", f"{alone}.json"]
    assert (report["checkpoints"], report["snapshots"]) == (0, 1)
    assert set(os.listdir(home / "flightline" / "checkpoints")) <= LOCKS
    daemon.start()
    assert call(daemon, "snapshot.latest", run_id="run-1")["snapshot_id"] == old
    ok("snapshot", "verify")
    assert json.loads((run / "latest.json").read_bytes())["snapshot_id"] == old
    assert call(daemon, "snapshot.list")["total"] == 1

    stopped()
    ok("restore", report["replaced"], "--yes")
    daemon.start()
    assert call(daemon, "snapshot.list")["total"] == 3
    ok("snapshot", "verify")
    assert json.loads((run / "latest.json").read_bytes())["snapshot_id"] == new


def test_a_restore_into_an_empty_place_writes_the_files_again(
    daemon: Daemon, home: Path, stopped: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = make_mission(daemon, "moved")
    taken = checkpoint(daemon, mission)
    ok("backup", str(home / "copy.db"))
    content = (home / "flightline" / "checkpoints" / mission / f"{taken}.json").read_bytes()
    stopped()
    monkeypatch.setenv("FLEET_DB_PATH", str(home / "new" / "data" / "squawk.db"))
    monkeypatch.setenv("FLIGHTLINE_DIR", str(home / "new" / "flightline"))
    report = ok("restore", str(home / "copy.db"), "--yes", "--json").json
    assert (report["replaced"], report["moved"], report["undo"]) == (None, [], None)
    assert set(os.listdir(home / "new" / "data")) == {"squawk.db", "squawk.db-lock"}
    daemon.start()
    assert titles(daemon) == {"moved"}
    ok("checkpoints", "verify", "--all")
    new = home / "new" / "flightline" / "checkpoints" / mission
    assert (new / f"{taken}.json").read_bytes() == content
    assert os.readlink(new / "latest.json") == f"{taken}.json"


def test_a_restore_while_a_daemon_runs_is_refused(daemon: Daemon, home: Path) -> None:
    make_mission(daemon, "here")
    ok("backup", "copy.db")
    refused = fleetctl("restore", "copy.db", "--yes")
    assert refused.status == 1
    assert "fleetctl daemon stop" in refused.err
    as_json = fleetctl("restore", "copy.db", "--yes", "--json")
    assert json.loads(as_json.err)["error"]["kind"] == "invalid_state"
    assert titles(daemon) == {"here"}
    assert not list((home / "data").glob("replaced-*"))


def test_a_daemon_at_another_socket_is_noticed_by_its_database(
    daemon: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("backup", "copy.db")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("FLEET_SOCKET", str(home / "run" / "other.sock" / "d.sock"))
        refused = fleetctl("restore", "copy.db", "--yes")
    assert refused.status == 1
    assert f"uses the database {home / 'data' / 'squawk.db'}" in refused.err
    assert titles(daemon) == set()


def test_without_a_terminal_it_must_be_said_in_so_many_words(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    ok("backup", str(home / "copy.db"))
    stopped()
    before = snapshot(home)
    refused = fleetctl("restore", str(home / "copy.db"))
    assert refused.status == 2
    assert "--yes" in refused.err
    assert snapshot(home) == before


def at_a_terminal(answer: str, *argv: str) -> tuple[int, str]:
    """Run a command whose question somebody answers; return its status and all it said."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *argv], stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        terminal.write(answer.encode())
        said = b""
        with contextlib.suppress(OSError):  # a terminal that nobody holds any more
            while part := terminal.read(4096):
                said += part
        return process.wait(60), said.decode()


def test_at_a_terminal_it_says_what_would_be_moved_where_and_asks(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    mission = make_mission(daemon, "old")
    ok("backup", str(home / "copy.db"))
    newer = checkpoint(daemon, mission)
    stopped()
    before = snapshot(home)
    status, said = at_a_terminal("n\n", "restore", str(home / "copy.db"))
    assert (status, "Restore cancelled." in said) == (3, True)
    assert f"The previous database would be moved to {home}/data/replaced-" in said
    assert f"{newer}.json" in said
    assert snapshot(home) == before
    status, said = at_a_terminal("y\n", "restore", str(home / "copy.db"))
    assert status == 0, said
    assert f"Restored {home}/data/squawk.db from {home}/copy.db" in said
    status, said = at_a_terminal("y\n", "restore", str(home / "nothing.db"))
    assert (status, "Restore it?" in said) == (2, False)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff" * 9_000)


def _truncated(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xa5" * 4096
    path.write_bytes(data)


def _newer(path: Path) -> None:
    _sql(path, "PRAGMA user_version = 99")


def _orphaned(path: Path) -> None:
    _sql(path, "INSERT INTO episodes VALUES ('msn-00000000', 1, 'x')")


def _sql(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def _foreign(path: Path) -> None:
    path.unlink()
    _sql(path, "CREATE TABLE recipes (name)")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SPOILT: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "garbage": (_garbage, "is not a SQLite database", 1),
    "truncated": (_truncated, "is damaged", 1),
    "flipped": (_flipped, "is damaged", 1),
    "newer schema": (_newer, "schema version 99", 1),
    "orphans": (_orphaned, "has no parent in missions", 1),
    "another program's": (_foreign, "not one of fleetd's", 2),
    "empty": (_empty, "not one of fleetd's", 2),
    "directory": (_directory, "is a directory", 2),
    "pipe": (_pipe, "is not a regular file", 2),
    "missing": (Path.unlink, "does not exist", 2),
}


def test_a_file_that_is_no_good_copy_is_refused_and_nothing_changes(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    checkpoint(daemon, make_mission(daemon, "here"))
    ok("backup", str(home / "copy.db"))
    good = (home / "copy.db").read_bytes()
    stopped()
    for name, (spoil, said, status) in SPOILT.items():
        bad = home / f"{name}.db"
        bad.write_bytes(good)
        spoil(bad)
        kept = [path for path in home.rglob("*") if path != bad]
        before = snapshot(home) if name != "pipe" else {}
        refused = fleetctl("restore", str(bad), "--yes")
        assert refused.status == status, (name, refused)
        assert said in refused.err, (name, refused)
        assert "Hint: " in refused.err
        assert "Traceback" not in refused.err
        if name != "pipe":
            assert snapshot(home) == before, name
        assert {p for p in kept if not p.exists() and not p.is_symlink()} == set()
        if bad.is_dir():
            bad.rmdir()
        else:
            bad.unlink(missing_ok=True)
    itself = fleetctl("restore", str(home / "data" / "squawk.db"), "--yes")
    assert (itself.status, "is the database itself" in itself.err) == (2, True)


def test_a_damaged_database_is_moved_aside_with_all_that_belongs_to_it(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    mission = make_mission(daemon, "good")
    ok("backup", str(home / "copy.db"))
    call(daemon, "lock.acquire", file="/x/a.py", agent_id="specialist-1")
    newer = checkpoint(daemon, mission)
    stopped()
    _garbage(home / "data" / "squawk.db")
    _garbage(home / "data" / "squawk.db-wal")
    found = [path for path in (home / "data").iterdir() if path.is_file()]
    parts = {path.name: path.read_bytes() for path in found if path.name not in LOCKS}
    report = ok("restore", str(home / "copy.db"), "--yes", "--json").json
    replaced = Path(report["replaced"]).parent
    del parts["squawk.db.ballast"]  # it holds nothing
    del parts["squawk.db-mark"]  # it stays, and says how far the log had come
    assert {path.name: path.read_bytes() for path in replaced.iterdir()} == parts
    assert (len(parts), report["undo"]) == (2, None)
    assert "is not a SQLite database" in report["warnings"][0]
    assert [newer in path for path in report["moved"]] == [True]
    daemon.start()
    assert titles(daemon) == {"good"}
    # Nobody knows any more which tokens it gave out last.
    lock = call(daemon, "lock.acquire", file="/x/a.py", agent_id="specialist-2")
    assert lock["fencing_token"] > 1_000_000


def test_a_file_that_cannot_be_read_stays_and_is_named(
    daemon: Daemon, home: Path, stopped: Callable[[], None]
) -> None:
    mission = make_mission(daemon, "here")
    ok("backup", str(home / "copy.db"))
    newer = checkpoint(daemon, mission)
    stopped()
    file = home / "flightline" / "checkpoints" / mission / f"{newer}.json"
    file.write_text("{}")
    said = ok("restore", str(home / "copy.db"), "--yes")
    assert file.read_text() == "{}"
    assert f"{newer}.json" in said.out
    assert "stays in place" in said.out


KILLED = """
import os, sys
def mortal(name):
    real = getattr(os, name)
    def call(*args, **kwargs):
        if name == sys.argv[1] and "squawk.db" in os.fspath(args[0]) + os.fspath(args[1]):
            os._exit(9)
        return real(*args, **kwargs)
    setattr(os, name, call)
mortal("link")
mortal("rename")
from fleetd.__main__ import main
sys.exit(main(["--restore", sys.argv[2]]))
"""


@pytest.mark.parametrize("last", ["link", "rename"])
def test_a_restore_that_is_killed_leaves_the_old_state_and_can_be_begun_again(
    daemon: Daemon, home: Path, stopped: Callable[[], None], last: str
) -> None:
    mission = make_mission(daemon, "old")
    kept = checkpoint(daemon, mission)
    ok("backup", str(home / "copy.db"))
    make_mission(daemon, "new")
    newer = checkpoint(daemon, mission)
    daemon.kill()
    command = [sys.executable, "-c", KILLED, last, str(home / "copy.db")]
    assert subprocess.run(command, check=False).returncode == 9
    assert _state(home, mission, kept, newer) == "old"
    ok("restore", str(home / "copy.db"), "--yes")
    assert _state(home, mission, kept, newer) == "restored"
    assert not list((home / "data").glob(".fleetd-part-*"))


def _state(home: Path, mission: str, kept: str, newer: str) -> str:
    """Start a daemon, see which state it serves, and that it is whole."""
    running = Daemon(socket=home / "run" / "d.sock", log=home / "state.log")
    running.start()
    try:
        seen = titles(running)
        page = call(running, "checkpoint.list", mission_id=mission)["checkpoints"]
        ids = {each["id"] for each in page}
        ok("checkpoints", "verify", "--all", "--repair")
        assert call(running, "checkpoint.get", checkpoint_id=kept)["id"] == kept
    finally:
        running.stop()
    if seen == {"old", "new"}:
        assert ids == {kept, newer}
        return "old"
    assert (seen, ids) == ({"old"}, {kept})
    return "restored"


def test_no_copy_is_put_in_the_place_of_a_store_that_is_on_a_server(
    home: Path,
    daemon: Daemon,
    stopped: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_mission(daemon, "before")
    ok("backup", str(home / "copy.db"))
    make_mission(daemon, "after")
    stopped()
    with monkeypatch.context() as shared:
        shared.setenv("FLEET_DATABASE_URL", "postgresql://me:secret@db.example.org/fleet")
        refused = fleetctl("restore", str(home / "copy.db"), "--yes")
        assert refused.status == 1
        assert "postgresql://me:***@db.example.org/fleet, which cannot be restored" in refused.err
        looked = fleetctl("doctor")
        assert "postgresql://me@db.example.org:5432/fleet cannot be used" in looked.out
        assert "secret" not in refused.err + refused.out + looked.err + looked.out
    daemon.start()
    assert titles(daemon) == {"before", "after"}
