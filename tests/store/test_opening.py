"""What the store insists on before it serves: settings, versions, permissions, its own file."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetd.store.api import StoreFull, StoreRefused, StoreUnready
from fleetd.store.sqlite import connect as sqlite_connect
from fleetd.store.sqlite.connect import check_sqlite, connect
from fleetd.store.sqlite.migrate import APPLICATION_ID, check_ours, migrate, migrations, schema
from fleetd.store.sqlite.store import SqliteStore


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(directory)): (
            stat.S_IMODE(path.stat().st_mode),
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in directory.rglob("*")
    }


async def test_the_settings_that_the_promises_rest_on_are_in_force(open_store: Any) -> None:
    names = (
        *("journal_mode", "synchronous", "foreign_keys", "trusted_schema", "query_only"),
        "cell_size_check",
    )
    async with open_store() as store:
        writer = await store.write(lambda tx: [tx.value(f"PRAGMA {name}") for name in names])
        reader = await store.read(lambda tx: [tx.value(f"PRAGMA {name}") for name in names])
    assert writer == ["wal", 2, 1, 0, 0, 1]
    assert reader == ["wal", 2, 1, 0, 1, 1]


async def test_a_write_through_the_reader_fails_and_changes_nothing(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        with pytest.raises(Exception, match=r"cannot be written"):
            await store.read(tools.put("smuggled"))
        with pytest.raises(Exception, match=r"cannot be written"):
            await store.read(lambda tx: tx.run("DROP TABLE events"))
        await store.write(tools.put("honest"))
        assert await store.read(lambda tx: tx.value("SELECT count(*) FROM events")) == 0
    assert tools.keys_in(database) == {"honest"}


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.51.2.9", "3.9.0", "2.99.99"])
def test_an_old_sqlite_is_refused(version: str) -> None:
    with pytest.raises(StoreRefused, match=rf"SQLite {version} is too old.*3\.51\.3.*apsw"):
        check_sqlite(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.51.10", "3.52.0", "4.0.0", "3.54.1.0"])
def test_a_sqlite_that_keeps_commits_is_accepted(version: str) -> None:
    check_sqlite(version)


def test_the_store_asks_for_the_version_of_the_library(
    monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreRefused, match=r"3\.51\.2 is too old"):
        SqliteStore(database, lambda _: None)
    assert not database.exists()


def normalised(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return each object's SQL without comments and spacing, which ALTER TABLE leaves otherwise."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(str(kind), str(name)): _bare(str(sql)) for kind, name, sql in rows}


def _bare(sql: str) -> str:
    words = " ".join(re.sub(r"--[^\n]*", "", sql).split())
    return re.sub(r"\s*([(),])\s*", r"\1", words)


def test_the_migrations_in_order_leave_exactly_the_schema() -> None:
    stepwise, whole = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    assert migrate(stepwise, "memory") == migrations()[-1][0]
    whole.execute(schema())
    assert normalised(stepwise) == normalised(whole)
    assert ("table", "checkpoints") in normalised(whole)
    assert stepwise.pragma("user_version") == migrations()[-1][0]
    assert stepwise.pragma("application_id") == APPLICATION_ID


def test_sessions_and_what_was_forgotten_outlive_that_their_tables_are_rebuilt(
    monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    every = migrations()
    database.parent.mkdir()
    connection = connect(str(database))
    monkeypatch.setattr("fleetd.store.sqlite.migrate.migrations", lambda: every[:3])
    assert migrate(connection, str(database)) == 3
    session = ("claude", "12f459b8", "", "ann", "lost", "d-1", "mark", "10:00", "11:00", None)
    ended = ("codex", "01a2", "sub", "bob", "whole", None, None, "10:00", "11:00", "12:00")
    connection.executemany(f"INSERT INTO sessions VALUES ({'?, ' * 9}?)", [session, ended])
    connection.execute("INSERT INTO forgotten VALUES ('mission', 'abc')")

    monkeypatch.undo()
    assert migrate(connection, str(database)) == every[-1][0]

    nothing_known = (*(None,) * 7, 0, None)
    assert connection.execute("SELECT * FROM sessions").fetchall() == [
        session + nothing_known,
        ended + nothing_known,
    ]
    assert connection.execute("SELECT * FROM forgotten").fetchall() == [("mission", "abc", None)]
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO sessions SELECT * FROM sessions")


def test_what_recoveries_left_for_sorties_outlives_that_it_moves(
    monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    every = migrations()
    number = next(n for n, sql in every if "CREATE TABLE briefings" in sql)
    database.parent.mkdir()
    connection = connect(str(database))
    monkeypatch.setattr("fleetd.store.sqlite.migrate.migrations", lambda: every[: number - 1])
    migrate(connection, str(database))
    connection.execute(
        "INSERT INTO missions (id, title, created_at, updated_at) VALUES ('msn-1', 'M', '', '')"
    )
    for sortie_id, left in (("srt-1", None), ("srt-2", "{}"), ("srt-3", '{"blockers":[]}')):
        connection.execute(
            "INSERT INTO sorties (id, mission_id, position, title, status, priority, created_at,"
            " updated_at, recovery_context_json)"
            " VALUES (?, 'msn-1', 1, 'S', 'pending', 'medium', '', '', ?)",
            (sortie_id, left),
        )

    monkeypatch.undo()
    migrate(connection, str(database))

    assert connection.execute(
        "SELECT s.id, b.mission_id, b.context_json FROM sorties s"
        " LEFT JOIN briefings b ON b.id = s.briefing_id ORDER BY s.id"
    ).fetchall() == [
        ("srt-1", None, None),
        ("srt-2", "msn-1", "{}"),
        ("srt-3", "msn-1", '{"blockers":[]}'),
    ]


def test_origin_and_closed_reason_are_filled_from_metadata_which_keeps_none_of_it(
    monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    every = migrations()
    number = next(n for n, sql in every if "closed_reason" in sql)
    database.parent.mkdir()
    connection = connect(str(database))
    monkeypatch.setattr("fleetd.store.sqlite.migrate.migrations", lambda: every[: number - 1])
    migrate(connection, str(database))
    for at, (status, ended, metadata) in enumerate(
        (
            ("in_progress", None, '{"automatic":true}'),
            ("cancelled", "10:00", '{"automatic":true,"ended_with_session":"10:00"}'),
            ("completed", "11:00", '{"automatic":true,"ended_with_session":"10:00","team":"a"}'),
            ("completed", "12:00", '{"automatic":"no","ended_with_session":"12:00"}'),
            ("in_progress", None, "{}"),
        )
    ):
        connection.execute(
            "INSERT INTO missions (id, title, created_at, updated_at, status, completed_at,"
            " metadata_json) VALUES (?, 'M', '', '', ?, ?, ?)",
            (f"msn-{at}", status, ended, metadata),
        )

    monkeypatch.undo()
    migrate(connection, str(database))

    assert connection.execute(
        "SELECT origin, closed_reason, metadata_json FROM missions ORDER BY id"
    ).fetchall() == [
        ("session", None, "{}"),
        ("session", "session", "{}"),
        ("session", "person", '{"team":"a"}'),
        ("person", "person", '{"automatic":"no","ended_with_session":"12:00"}'),
        ("person", None, "{}"),
    ]


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_migrating_again_changes_nothing(database: Path) -> None:
    database.parent.mkdir()
    connection = connect(str(database))
    migrate(connection, str(database))
    before = connection.pragma("schema_version")
    migrate(connection, str(database))
    assert connection.pragma("schema_version") == before
    connection.close()


def test_a_migration_that_fails_leaves_the_version_before(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(database, lambda _: None)._writer_connection.close()
    newest = migrations()[-1][0]
    broken = [*migrations(), (newest + 1, "CREATE TABLE half (a); CREATE TABLE events (a);")]
    monkeypatch.setattr("fleetd.store.sqlite.migrate.migrations", lambda: broken)
    with pytest.raises(StoreRefused, match=r"cannot be brought up to date.*events already exists"):
        SqliteStore(database, lambda _: None)
    connection = apsw.Connection(str(database))
    assert connection.pragma("user_version") == newest
    assert ("table", "half") not in normalised(connection)
    connection.close()


def test_a_newer_schema_is_refused_with_both_versions(database: Path) -> None:
    database.parent.mkdir()
    connection = connect(str(database))
    newest = migrate(connection, str(database))
    connection.pragma("user_version", 99)
    connection.close()
    before = fingerprint(database.parent)
    with pytest.raises(StoreRefused, match=rf"schema version 99.*knows up to {newest}"):
        SqliteStore(database, lambda _: None)
    assert fingerprint(database.parent) == before


@pytest.mark.parametrize("user_version", [0, 1, 7])
def test_a_database_of_another_program_is_refused_and_untouched(
    database: Path, user_version: int
) -> None:
    database.parent.mkdir()
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE recipes (name); INSERT INTO recipes VALUES ('soup')")
    connection.pragma("user_version", user_version)
    connection.close()
    database.chmod(0o644)
    before = fingerprint(database.parent)
    with pytest.raises(StoreRefused, match=r"database of another program \(it has recipes\)"):
        SqliteStore(database, lambda _: None)
    assert fingerprint(database.parent) == before


@pytest.mark.parametrize("content", [b"dear diary, " * 500, b"\x00\xff" * 4096, b"1" * 600])
def test_a_file_that_is_no_database_is_refused_and_untouched(
    database: Path, content: bytes
) -> None:
    database.parent.mkdir()
    database.write_bytes(content)
    database.chmod(0o644)
    before = fingerprint(database.parent)
    with pytest.raises(StoreRefused, match=r"is not a SQLite database.*FLEET_DB_PATH"):
        SqliteStore(database, lambda _: None)
    assert fingerprint(database.parent) == before


def test_a_place_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreRefused, match=r"file/fleet\.db cannot be opened.*is writable"):
        SqliteStore(tmp_path / "file" / "fleet.db", lambda _: None)
    (tmp_path / "directory.db").mkdir()
    with pytest.raises(StoreRefused, match="cannot be opened"):
        SqliteStore(tmp_path / "directory.db", lambda _: None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreRefused, match="cannot be opened"):
        SqliteStore(tmp_path / "fleet.db", lambda _: None)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        *((reason, StoreFull) for reason in (errno.ENOSPC, errno.EDQUOT)),
        *((reason, StoreUnready) for reason in (errno.EIO, errno.EMFILE, errno.ENOMEM)),
        *((reason, StoreRefused) for reason in (errno.EACCES, errno.EROFS)),
    ],
)
@pytest.mark.parametrize("step", ["make_directories", "rewrite_wal"])
def test_what_may_be_over_next_time_is_told_from_what_a_person_must_change(
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    reason: int,
    kind: type[StoreRefused],
) -> None:
    """Of the one a start is worth trying again; of the other systemd is told that it is not."""

    def fail(*_: Any) -> None:
        raise OSError(reason, os.strerror(reason))

    database.parent.mkdir()
    monkeypatch.setattr(f"fleetd.store.sqlite.connect.{step}", fail)
    with pytest.raises(StoreRefused, match=os.strerror(reason)) as refusal:
        SqliteStore(database, lambda _: None)
    assert refusal.type is kind


@pytest.mark.parametrize("version", [1, None], ids=["to be migrated", "present"])
def test_a_database_that_another_program_keeps_locked_may_be_free_next_time(
    database: Path, monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    monkeypatch.setattr("fleetd.store.sqlite.connect.BUSY_MS", 1)
    database.parent.mkdir()
    other = connect(str(database))
    for number, sql in migrations():
        if version is None or number <= version:
            other.execute(sql)
            other.pragma("user_version", number)
    other.pragma("application_id", APPLICATION_ID)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnready, match=r"Another program holds a lock on the database"):
        SqliteStore(database, lambda _: None)
    other.execute("ROLLBACK")
    other.close()


def modes(database: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in database.parent.iterdir()}


@pytest.mark.usefixtures("no_umask")
async def test_nobody_else_may_look_in_whatever_the_umask(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("secret"))
        assert modes(database) == dict.fromkeys(("fleet.db", "fleet.db-wal", "fleet.db-shm"), 0o600)
        assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("no_umask")
async def test_a_new_database_is_never_open_to_others_not_even_for_a_moment(
    open_store: Any, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def look(*arguments: Any) -> int:
        seen.extend(modes(database).values())
        return check_ours(*arguments)

    monkeypatch.setattr("fleetd.store.sqlite.connect.check_ours", look)
    async with open_store():
        assert set(seen) == {0o600}


def loosen(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.usefixtures("no_umask")
async def test_a_database_that_was_left_open_to_others_is_closed_to_them(
    open_store: Any, database: Path, tools: Any
) -> None:
    async with open_store() as store:
        await store.write(tools.put("secret"))
    loosen(database)
    async with open_store() as store:
        await store.write(tools.put("another"))
        assert set(modes(database).values()) == {0o600}


def test_it_looks_again_soon_while_another_has_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(sqlite_connect.time, "sleep", pauses.append)
    path = str(tmp_path / "one.db")
    with closing(connect(path)) as one, closing(connect(path)) as other:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(apsw.BusyError):
            other.execute("BEGIN IMMEDIATE")
        one.execute("ROLLBACK")
        other.execute("BEGIN IMMEDIATE")
    # SQLite's own pauses grow: who has the database for 3 ms would keep the other out for 8.
    assert set(pauses) == {sqlite_connect.BUSY_LOOK_MS / 1_000}
    assert sum(pauses) >= sqlite_connect.BUSY_MS / 1_000
