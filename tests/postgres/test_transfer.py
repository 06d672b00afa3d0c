"""A store goes to a server and back: every row is there, and what belongs to a place stays."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import pytest
import trio

from fleetd.domain.attention import running
from fleetd.domain.liveness import needs
from fleetd.domain.usage import records
from fleetd.engine.offline.migrate_store import MigrationEnds, bare, check, move
from fleetd.harness.report import RunningItem
from fleetd.harness.usage.record import UsageRecord
from fleetd.protocol.errors import Corrupt, InvalidState, Storage, Unavailable
from fleetd.protocol.migration import Migration
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.attention import AttentionList
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointVerify
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.search import SearchQuery
from fleetd.protocol.requests.system import SystemDoctor
from fleetd.protocol.requests.usage import BudgetList, UsageBudget
from fleetd.store.api import StoreRefused
from fleetd.store.machine_identity import machine_id
from fleetd.store.sqlite import page_checksums
from fleetd.store.sqlite.group_commit import SqliteExecutor
from tests.support.fleet import MINUTE, Clock, Fleet, opened
from tests.support.postgres_server import LocalPostgres, run_sql

OTHER = "feedfeedfeedfeed"


def hook(delivery: str) -> HookDeliver:
    """Return a hook of a session of its own."""
    payload = {"session_id": delivery, "hook_event_name": "SessionStart", "cwd": "/srv"}
    return HookDeliver(delivery, "claude", json.dumps(payload))


class Moving:
    """One machine whose store lies in a file or in a schema of a server."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        self.database = home / "data" / "squawk.db"
        self.clock = Clock()

    def local(self) -> Any:
        return opened(self.home, clock=self.clock, store="")

    def shared(self) -> Any:
        return opened(self.home, clock=self.clock, store=self.url)

    @property
    def machine(self) -> str:
        return machine_id(self.database.parent)

    def ends(self, *, there: bool) -> MigrationEnds:
        return MigrationEnds(self.url, self.database, self.machine, there)

    def there(self) -> Migration:
        return move(self.ends(there=True), _silent)

    def back(self) -> Migration:
        return move(self.ends(there=False), _silent)

    def check(self, *, there: bool = True) -> Migration:
        return check(self.ends(there=there), _silent)

    def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        return run_sql(self.url, statement, *values)

    def at_home(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement on the database of this machine, behind everybody's back."""
        connection = page_checksums.opened(str(self.database))
        try:
            connection.set_busy_timeout(5_000)
            return SqliteExecutor(connection)(statement, {})
        finally:
            connection.close()

    def held(self) -> str | None:
        """Return which epoch the server has, None while it has no store."""
        if self.sql("SELECT to_regclass('store_meta') AS there")[0]["there"] is None:
            return None
        rows = self.sql("SELECT value FROM store_meta WHERE key = 'epoch'")
        return rows[0]["value"] if rows else None


def _silent(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total, what


@pytest.fixture
def moving(tmp_path: Path, postgres: LocalPostgres, database: str) -> Moving:
    return Moving(tmp_path, postgres.url(database))


async def a_days_work(fleet: Fleet) -> Mission:
    """Leave something in every table that a person would miss."""
    mission = await fleet.mission(4, title="Nul \0 and caf\u00e9")
    await fleet.agents(mission, "dispatch-1", "alice", "bob")
    await fleet.work(mission, 0, "alice", notes="Half \0 done")
    await fleet.complete(mission, 0)
    await fleet.lock(mission, "src/1.py", "alice")
    await fleet.write(mission, ["bob"], body="Look")
    serves = [RunningItem("b1", "shell", "npm run serve", "/tmp/b1.output")]
    await fleet.engine.write(running.see, "alice", serves, fleet.clock.now)
    await fleet.engine.write(needs.ask, "alice", "Bash: make", fleet.clock.now, 1)
    asks = needs.Need("limit", "Which \0 port?", fleet.clock.now)
    await fleet.engine.write(needs.set_need, "bob", asks, fleet.clock.now)
    await fleet.do(UsageBudget(mission_id=mission.id, tokens=5))
    took = UsageRecord(key="k", at=fleet.clock.now, model="m", input=7)
    await fleet.engine.write(records.add, "claude", "alice", [took], "")
    await fleet.checkpoint(mission, "Before the move")
    await fleet.settle()
    return mission


async def told(fleet: Fleet, mission: Mission) -> dict[str, Any]:
    """Return what a fleet tells of a mission; a NUL as PostgreSQL has it."""
    events = await fleet.do(EventList(mission.id, limit=1_000))
    mail = await fleet.do(MessageList(mission_id=mission.id))
    # Whose machine it is of is only told where there are several.
    alone = msgspec.structs.replace(await fleet.again(mission), machine=None)
    kept = [alone, *await fleet.sorties(mission), *mail.messages]
    states = (await fleet.do(AttentionList(mission_id=mission.id))).agents
    return {
        "needs": repr([(each.agent_id, each.needs, each.text, each.reset_at) for each in states]),
        "running": repr([each.running for each in states]),
        "records": repr(kept).replace(r"\x00", "\u2400"),
        "events": repr(events.events).replace(r"\x00", "\u2400"),
        "budgets": repr((await fleet.do(BudgetList())).budgets).replace(r"\x00", "\u2400"),
        "found": await found(fleet),
        "epoch": events.epoch,
        "checkpoints": await fleet.checkpoint_ids(mission),
    }


async def found(fleet: Fleet) -> list[list[tuple[Any, ...]]]:
    """Return what searches find, of an index that is whole."""
    findings = (await fleet.do(SystemDoctor())).findings
    assert [each.ok for each in findings if each.check == "search"] == [True]
    asked = [SearchQuery("half"), SearchQuery("cafe"), SearchQuery("look"), SearchQuery("k.y")]
    pages = [await fleet.do(each) for each in [*asked, SearchQuery("", path="/1.py")]]
    return [[(hit.seq, hit.kind, hit.agent_id, hit.id) for hit in page.hits] for page in pages]


async def test_what_a_fleet_tells_is_the_same_there_and_back(moving: Moving) -> None:
    async with moving.local() as fleet:
        mission = await a_days_work(fleet)
        before = await told(fleet, mission)
    asked = "SELECT agent_id, seq, since, text FROM unconfirmed_asks"
    [ask] = moving.at_home(asked)
    report = moving.there()
    assert report.moved
    assert report.same
    assert moving.sql(asked) == [ask]
    assert moving.check().same
    async with moving.shared() as fleet:
        now = await told(fleet, mission)
        ended = [event.type for event in await fleet.events(mission)][-1]
    assert now["epoch"] == before["epoch"]
    assert now["checkpoints"] == before["checkpoints"]
    assert now["found"][:3] == before["found"][:3]
    assert all(before["found"][:3])
    assert now["records"] == before["records"]
    assert (now["needs"], now["running"]) == (before["needs"], before["running"])
    assert now["budgets"] == before["budgets"]
    assert "input_tokens=7" in now["budgets"]
    assert "b1" in now["running"]
    assert "limit" in now["needs"]
    assert now["events"].startswith(before["events"].rstrip("]"))
    assert ended == "lock_force_released"
    report = moving.back()
    assert report.same
    assert report.replaced is not None
    assert [path.name for path in moving.home.glob("data/replaced-*/*")] == ["squawk.db"]
    async with moving.local() as fleet:
        again = await told(fleet, mission)
        assert await fleet.engine.store.check() == []
        restored = await fleet.restore(mission_id=mission.id)
    assert again == now
    assert moving.at_home(asked) == [ask]
    assert restored.success


async def test_rows_say_in_the_shared_store_whose_they_are_and_at_home_nothing(
    moving: Moving,
) -> None:
    async with moving.local() as fleet:
        await a_days_work(fleet)
    moving.there()
    for table in ("missions", "agents", "checkpoints"):
        rows = moving.sql(f"SELECT DISTINCT machine FROM {table}")
        assert rows == [{"machine": moving.machine}], table
    moving.back()
    async with moving.local() as fleet:
        for table in ("missions", "agents", "checkpoints"):
            assert moving.at_home(f"SELECT DISTINCT machine FROM {table}") == [{"machine": ""}]
        assert moving.at_home("SELECT * FROM machines") == []


async def test_numbers_go_on_above_those_that_were_given_out(moving: Moving) -> None:
    async with moving.local() as fleet:
        mission = await a_days_work(fleet)
        await fleet.do(LockAcquire("bob", "src/2.py", mission_id=mission.id))
        end = (await fleet.events())[-1].seq
    # The last ones of the log are gone: their numbers must not come again.
    moving.at_home("DELETE FROM events WHERE seq > 5")
    moving.at_home("INSERT INTO sqlite_sequence VALUES ('lock_waits', 900)")
    moving.at_home("INSERT INTO sqlite_sequence VALUES ('hook_deliveries', 700)")
    (moving.database.parent / "squawk.db-mark").unlink(missing_ok=True)
    moving.there()
    async with moving.shared() as fleet:
        await fleet.mission()
        assert min(e.seq for e in await fleet.events() if e.seq > 5) == end + 1
        await fleet.do(hook("delivery"))
    assert moving.sql("SELECT value FROM counters WHERE name = 'lock_waits'") == [{"value": 900}]
    (delivery,) = moving.sql("SELECT seq FROM hook_deliveries WHERE id = 'delivery'")
    assert delivery["seq"] > 700
    moving.back()
    async with moving.local() as fleet:
        kept = moving.at_home("SELECT name, seq FROM sqlite_sequence WHERE name <> 'events'")
        numbers = {row["name"]: row["seq"] for row in kept}
        assert numbers == {"lock_waits": 900, "hook_deliveries": delivery["seq"]}


async def test_a_store_that_was_moved_back_can_be_moved_again(moving: Moving) -> None:
    for number in (1, 2):
        async with moving.local() as fleet:
            await fleet.do(hook(f"home-{number}"))
        assert moving.there().same
        async with moving.shared() as fleet:
            await fleet.do(hook(f"there-{number}"))
        assert moving.back().same
    found = moving.at_home("SELECT id FROM hook_deliveries ORDER BY seq")
    assert [row["id"] for row in found] == ["home-1", "there-1", "home-2", "there-2"]


async def test_checksums_that_were_made_with_a_nul_are_made_anew(moving: Moving) -> None:
    async with moving.local() as fleet:
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission, "a\0b")
        await fleet.settle()
        assert (await fleet.do(CheckpointGet(taken.id))).trigger_details == "a\0b"
    assert moving.there().same
    assert moving.check().same
    async with moving.shared() as fleet:
        await fleet.settle()
        assert (await fleet.do(CheckpointGet(taken.id))).trigger_details == "a\u2400b"
        assert (await fleet.do(CheckpointVerify())).ok
    assert moving.back().same
    async with moving.local() as fleet:
        await fleet.settle()
        assert (await fleet.do(CheckpointVerify())).ok


async def test_silence_is_counted_on_by_the_clock_of_the_new_place(moving: Moving) -> None:
    async with moving.local() as fleet:
        mission = await fleet.mission()
        fleet.clock.pass_by(3 * MINUTE)
    moving.there()
    async with moving.shared() as fleet:
        row = moving.sql("SELECT active_awake_ms FROM missions WHERE id = %s", mission.id)[0]
        assert fleet.clock.awake_ms - row["active_awake_ms"] == 3 * MINUTE


async def test_other_machines_find_a_mission_that_came_by_its_project(moving: Moving) -> None:
    (moving.home / "project").mkdir()
    for command in ("init -q", "remote add origin https://git.example.org/acme/widget.git"):
        path = str(moving.home / "project")
        await trio.run_process(["git", "-C", path, *command.split()])
    async with moving.local() as fleet:
        mission = await fleet.mission()
    moving.there()
    async with moving.shared():
        pass
    [row] = moving.sql("SELECT project FROM missions WHERE id = %s", mission.id)
    assert row["project"].startswith("git.example.org/acme/widget")


async def test_a_store_that_was_moved_is_opened_by_nobody(moving: Moving) -> None:
    async with moving.local() as fleet:
        await fleet.mission()
    moving.there()
    with pytest.raises(StoreRefused, match="was moved to postgresql://") as refused:
        async with moving.local():
            pass
    assert "fleetctl migrate --undo" in str(refused.value)
    async with moving.shared():
        pass
    left = moving.database.with_name(".fleetd-part-0011223344556677.db-wal")
    left.write_bytes(b"of a move that was killed")
    moving.back()
    assert not left.exists()
    with pytest.raises(StoreRefused, match=f"was moved to {moving.database}") as refused:
        async with moving.shared():
            pass
    assert "Remove the setting store, or FLEET_DATABASE_URL" in str(refused.value)


async def test_moved_twice_there_and_back_it_takes_the_place_of_what_it_left(
    moving: Moving,
) -> None:
    async with moving.local() as fleet:
        mission = await a_days_work(fleet)
    for _ in range(2):
        moving.there()
        async with moving.shared() as fleet:
            await fleet.checkpoint(mission)
        moving.back()
        async with moving.local() as fleet:
            await fleet.checkpoint(mission)
            assert await fleet.engine.store.check() == []
            known = await fleet.checkpoint_ids(mission)
    assert len(known) >= 5
    with pytest.raises(InvalidState, match="already moved to"):
        moving.back()


@pytest.mark.parametrize("there", [True, False])
async def test_another_store_is_never_overwritten(moving: Moving, *, there: bool) -> None:
    async with moving.local() as fleet:
        await fleet.mission()
    async with moving.shared() as fleet:
        mission = await fleet.mission()
        await fleet.checkpoint(mission)
    moving.sql("UPDATE machines SET status = 'left'")
    with pytest.raises(InvalidState, match="already holds another store") as refused:
        moving.there() if there else moving.back()
    assert "1 missions" in refused.value.message
    async with moving.shared() as fleet:
        assert (await fleet.again(mission)).id == mission.id


async def test_a_server_that_a_daemon_has_only_looked_at_counts_as_empty(moving: Moving) -> None:
    async with moving.shared():
        pass
    async with moving.local() as fleet:
        mission = await fleet.mission()
    assert moving.there().same
    async with moving.shared() as fleet:
        assert (await fleet.again(mission)).title == mission.title


async def test_while_another_machine_is_at_work_nothing_is_moved(moving: Moving) -> None:
    async with moving.shared() as fleet:
        await fleet.mission()
    moving.sql(
        "INSERT INTO machines VALUES (%s, 'far', 'here', '', '',"
        " (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 0)",
        OTHER,
    )
    with pytest.raises(InvalidState, match="fleetd runs on far"):
        moving.back()
    moving.sql("UPDATE machines SET heard_awake_ms = heard_awake_ms - 61000 WHERE id = %s", OTHER)
    assert moving.back().same


async def test_what_other_machines_had_is_looked_after_here(moving: Moving) -> None:
    async with moving.shared() as fleet:
        mission = await a_days_work(fleet)
        checkpoint = (await fleet.checkpoint_ids(mission))[0]
    moving.sql("UPDATE agents SET machine = %s WHERE id = 'bob'", OTHER)
    moving.sql("UPDATE checkpoints SET machine = %s", OTHER)
    file = moving.home / ".flightline" / "checkpoints" / mission.id / f"{checkpoint}.json"
    file.unlink()
    moving.back()
    async with moving.local() as fleet:
        await fleet.settle()
        assert {each.id for each in (await fleet.do(AgentList())).agents} >= {"alice", "bob"}
        agents = moving.at_home("SELECT id, status FROM agents ORDER BY id")
    states = {each["id"]: each["status"] for each in agents}
    assert states["bob"] == "lost"
    assert states["alice"] != "lost"
    assert file.exists()


async def test_a_difference_is_found_and_named(moving: Moving) -> None:
    async with moving.local() as fleet:
        mission = await a_days_work(fleet)
    moving.there()
    moving.sql("UPDATE missions SET title = 'Another' WHERE id = %s", mission.id)
    report = moving.check()
    assert not report.same
    [wrong] = [table for table in report.tables if not table.same]
    assert (wrong.table, wrong.first_difference) == ("missions", mission.id)
    moving.sql("DELETE FROM events WHERE seq = 2")
    wrong = next(each for each in moving.check().tables if each.table == "events")
    assert (wrong.source_rows - wrong.target_rows, wrong.first_difference) == (1, "2")


async def test_a_copy_that_came_out_wrong_is_not_kept(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with moving.local() as fleet:
        await a_days_work(fleet)
    monkeypatch.setattr(
        "fleetd.store.transfer.postgres_side.PostgresSide.fill", lambda *_: None, raising=True
    )
    with pytest.raises(Corrupt, match=r"missions \(1 and 0 rows, first at msn-"):
        moving.there()
    assert moving.held() is None
    async with moving.local() as fleet:
        assert await fleet.events()


STEPS = {
    "the first table": "fleetd.store.transfer.copy.TransferPlan.leaving",
    "the comparison": "fleetd.engine.offline.migrate_store.compare",
}


class Struck(BaseException):
    """What ends a process, seen from inside."""


def strike(*_: object, **__: object) -> Any:
    raise Struck


@pytest.mark.parametrize("there", [True, False], ids=["there", "back"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
async def test_a_move_that_ends_in_the_middle_is_begun_anew(
    moving: Moving, step: str, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    source, target = (moving.local, moving.shared) if there else (moving.shared, moving.local)
    go: Callable[[], Migration] = moving.there if there else moving.back
    async with source() as fleet:
        mission = await a_days_work(fleet)
        before = await told(fleet, mission)
    with monkeypatch.context() as patched:
        patched.setattr(step, strike)
        with pytest.raises(Struck):
            go()
    async with source() as fleet:  # the old one is in use, and goes on
        assert await told(fleet, mission) == before
        await fleet.checkpoint(mission)
    assert go().same
    async with target() as fleet:
        assert len(await fleet.checkpoint_ids(mission)) == len(before["checkpoints"]) + 1
    assert list(moving.database.parent.glob(".fleetd-part-*")) == []


@pytest.mark.parametrize("there", [True, False], ids=["there", "back"])
async def test_a_move_whose_end_nobody_saw_leaves_no_two_stores_in_use(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    source, target = (moving.local, moving.shared) if there else (moving.shared, moving.local)
    go: Callable[[], Migration] = moving.there if there else moving.back
    async with source() as fleet:
        mission = await a_days_work(fleet)
    with monkeypatch.context() as patched:
        patched.setattr("fleetd.engine.offline.migrate_store.note_moved", strike)
        with pytest.raises(Struck):
            go()
    with pytest.raises(StoreRefused, match=r"was being moved to .* Run the same command again"):
        async with source():
            pass
    assert go().same
    async with target() as fleet:
        assert (await fleet.again(mission)).id == mission.id


FULL = {
    True: ("postgres_side.PostgresSide", psycopg.errors.DiskFull("no space left on device")),
    False: ("sqlite_side.SqliteSide", apsw.FullError("database or disk is full")),
}


@pytest.mark.parametrize("there", [True, False], ids=["there", "back"])
async def test_a_disk_that_is_full_leaves_everything_as_it_was(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    source, go = (moving.local, moving.there) if there else (moving.shared, moving.back)
    async with source() as fleet:
        mission = await a_days_work(fleet)
    side, error = FULL[there]

    def full(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(f"fleetd.store.transfer.{side}.count_on", full)
        with pytest.raises(Storage, match=r"no space|is full") as refused:
            go()
    place = moving.url.partition("://")[0] if there else str(moving.database.parent)
    assert place in refused.value.message
    assert list(moving.database.parent.glob(".fleetd-part-*")) == []
    assert moving.database.exists() is there
    async with source() as fleet:
        assert (await fleet.again(mission)).id == mission.id
    assert go().same


async def test_a_server_that_goes_away_leaves_everything_as_it_was(
    tmp_path: Path, own_postgres: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = Moving(tmp_path, own_postgres.url(own_postgres.new_database()))
    async with moving.local() as fleet:
        mission = await a_days_work(fleet)
    with monkeypatch.context() as patched:
        patched.setattr(
            "fleetd.engine.offline.migrate_store.note_arrived", lambda *_: own_postgres.kill()
        )
        with pytest.raises(Unavailable, match="postgresql://"):
            moving.there()
    own_postgres.start()
    async with moving.local() as fleet:
        assert (await fleet.again(mission)).id == mission.id
    assert moving.held() is None
    assert moving.there().same


async def test_a_read_only_server_is_named_with_what_to_do(
    moving: Moving, postgres: LocalPostgres, database: str
) -> None:
    async with moving.local() as fleet:
        await fleet.mission()
    postgres.sql(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
    with pytest.raises(Unavailable, match="it is read-only: default_transaction") as refused:
        moving.there()
    assert refused.value.message.startswith("postgresql://fleet@")


async def test_a_newer_schema_is_left_alone(moving: Moving) -> None:
    async with moving.local() as fleet:
        await fleet.mission()
    async with moving.shared():
        pass
    moving.sql("UPDATE schema_version SET version = 99")
    with pytest.raises(InvalidState, match="has schema version 99"):
        moving.there()


def test_without_a_database_there_is_nothing_to_move(moving: Moving) -> None:
    with pytest.raises(InvalidState, match="nothing to move"):
        moving.there()
    assert not moving.database.exists()


async def test_a_server_without_a_store_has_nothing_to_give(moving: Moving) -> None:
    with pytest.raises(InvalidState, match="holds no store of fleetd"):
        moving.back()
    assert moving.held() is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://a:geheim@h/d", "postgresql://a@h/d"),
        (
            "postgresql://a@h/d?password=geheim&sslmode=require",
            "postgresql://a@h/d&sslmode=require",
        ),
        ("host=h password='ge heim' dbname=d", "host=h dbname=d"),
        ("postgresql://a@h/d?sslmode=require", "postgresql://a@h/d?sslmode=require"),
    ],
)
def test_what_is_to_be_set_holds_no_password(url: str, shown: str) -> None:
    assert "heim" not in bare(url)
    assert bare(url) == shown
