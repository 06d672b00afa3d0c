"""What was done last, and what makes room: the same as looking through everything would find."""

import random
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from fleetd.config import Limits
from fleetd.domain.checkpoints.checkpoints import NEVER_DROPPED, _superfluous
from fleetd.domain.checkpoints.derived_context import last_action
from fleetd.domain.checkpoints.narrative import sentence
from fleetd.domain.core.context import Context
from fleetd.domain.core.event_log import NO_DEEDS, event_of
from fleetd.domain.core.sql import in_sql
from fleetd.domain.core.tx import Row, Tx
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockRenew
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.store.sqlite.migrate import migrations, schema
from tests.support.fleet import MINUTE, Fleet, opened

AGENTS = ("spec-1", "spec-2")
OF_MISSION = (
    "SELECT * FROM events WHERE mission_id = :mission AND activity = 1"
    " AND seq <= (SELECT last_activity_seq FROM missions WHERE id = :mission)"
    f" AND type NOT IN {in_sql(NO_DEEDS)} ORDER BY seq DESC LIMIT 1"
)
OF_AGENT = (
    "SELECT * FROM events WHERE mission_id = :mission AND agent_id = :agent AND activity = 1"
    f" AND type NOT IN {in_sql(NO_DEEDS)} ORDER BY seq DESC LIMIT 1"
)


def told(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> str:
    return last_action(tx, mission_id, [], agent_id)


def looked_through(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> str:
    """Return what looking through the whole log finds."""
    row = (
        tx.one(OF_AGENT, mission=mission_id, agent=agent_id)
        if agent_id
        else tx.one(OF_MISSION, mission=mission_id)
    )
    return sentence(event_of(row)) if row else "Nothing recorded yet"


async def compare(fleet: Fleet, missions: list[Mission]) -> None:
    for mission in missions:
        for agent in (None, *AGENTS):
            expected = await fleet.engine.read(looked_through, mission.id, agent)
            assert await fleet.engine.read(told, mission.id, agent) == expected


async def happen(fleet: Fleet, chance: random.Random, mission: Mission) -> None:
    """Let something happen that is a deed, activity that is none, or no activity."""
    agent = chance.choice(AGENTS)
    number = chance.randrange(100)
    what = chance.randrange(9)
    if what == 0:
        await fleet.checkpoint(mission)
    elif what == 1:
        await fleet.do(MissionUpdate(mission.id, title=f"T{number}"))
    elif what == 2:
        await fleet.do(AgentRegister(agent, "specialist", mission_id=mission.id))
    elif what == 3:
        lock = await fleet.lock(mission, f"src/{agent}{number}.py", agent)
        await fleet.do(LockRenew(lock.id, agent))
    elif what == 4:
        tool = {"tool": "x", "call_id": str(number)}
        await fleet.do(EventAppend("tool_started", mission.id, agent, tool))
        await fleet.do(EventAppend("tool_finished", mission.id, agent, tool))
    elif what == 5:
        report = ErrorReport(agent, "exception", "ValueError", str(number), mission.id)
        await fleet.do(report)
    elif what == 6:
        await fleet.do(EventAppend(f"own_{number}", mission_id=mission.id))  # nobody's
    elif what == 7:
        lost = "DELETE FROM events WHERE mission_id = :id AND seq % 3 = :rest"
        fleet.sql(lost, id=mission.id, rest=number % 3)
    else:
        file = {"file": f"{number}.py"}
        await fleet.do(EventAppend("file_modified", mission.id, agent, file))


@pytest.mark.parametrize("seed", range(8))
async def test_the_last_deed_is_the_one_that_looking_through_the_log_finds(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path) as fleet:
        missions = [await fleet.mission(), await fleet.mission(start=False)]
        await fleet.agents(missions[0], *AGENTS)
        for _ in range(40):
            fleet.clock.pass_by(MINUTE)
            await happen(fleet, chance, chance.choice(missions))
            await compare(fleet, missions)
        lately = await fleet.checkpoint(missions[0])
        await happen(fleet, chance, missions[0])
        await fleet.restore(lately)
        await compare(fleet, missions)
        fleet.sql("UPDATE missions SET last_deed_seq = -1")
        fleet.sql(of_migration())
        await compare(fleet, missions)
    fleet.lose_database()
    async with opened(tmp_path) as fleet:  # the missions come back from their files
        await compare(fleet, missions)
        for _ in range(10):
            await happen(fleet, chance, missions[0])
            await compare(fleet, missions)


MIGRATIONS = resources.files("fleetd.store") / "migrations"


def of_migration() -> str:
    """Return the statement with which an older store learns of its last deeds."""
    (text,) = (sql for number, sql in migrations() if number == 9)
    return text[text.index("UPDATE missions") : text.index("DROP INDEX idx_events_deeds")]


def test_every_list_of_what_is_no_deed_is_the_same() -> None:
    postgres = MIGRATIONS / "postgres"
    ours = dict(migrations())
    lists = {
        at: [
            re.findall(r"'(\w+)'", found)
            for text in texts
            for found in re.findall(r"type NOT IN \(([^)]*)\)", text)
        ]
        for at, texts in {
            9: (ours[9], (postgres / "0009_deeds.sql").read_text("utf-8")),
            11: (schema(), ours[11], (postgres / "0011_notes.sql").read_text("utf-8")),
        }.items()
    }
    assert [len(found) for found in lists.values()] == [4, 3]
    assert all(found == list(NO_DEEDS) for found in lists[11])
    # A note was none before there were notes.
    before = [kind for kind in NO_DEEDS if not kind.startswith("note_")]
    assert all(found == before for found in lists[9])


def read_through(rows: list[Row], pinned: str | None) -> list[str]:
    """Return what is to go, in order, from all of a mission's checkpoints, newest first."""
    milestone = next((row["id"] for row in rows if row["trigger"] == "progress"), None)
    rest = [r for r in reversed(rows[NEVER_DROPPED:]) if r["id"] not in (milestone, pinned)]
    rest.sort(key=lambda row: row["trigger"] != "error")
    return [row["id"] for row in rest]


@pytest.mark.parametrize("seed", range(8))
async def test_what_makes_room_is_what_looking_through_all_of_them_finds(
    fleet: Fleet, seed: int
) -> None:
    chance = random.Random(seed)
    mission = await fleet.mission(1)
    for _ in range(12):
        fleet.clock.pass_by(MINUTE)
        await fleet.checkpoint(mission, trigger=chance.choice(("manual", "error", "compaction")))
        if chance.randrange(3) == 0:
            newest = "SELECT max(seq) FROM checkpoints"
            fleet.sql(f"UPDATE checkpoints SET trigger = 'progress' WHERE seq = ({newest})")
    everything = "SELECT id, trigger FROM checkpoints ORDER BY seq DESC"
    rows = fleet.sql(everything)
    for pinned in (None, *(row["id"] for row in rows)):
        for most in range(1, 13):
            found = await fleet.engine.read(going, mission.id, pinned, most)
            assert found == read_through(rows, pinned)[:most]


def going(tx: Tx, ctx: Context, mission_id: str, pinned: str | None, most: int) -> list[str]:
    return _superfluous(tx, mission_id, pinned, most)


OF_LIVE, OF_TRIGGER = "USING INDEX idx_checkpoints_live", "USING INDEX idx_checkpoints_trigger"
FOUND = [
    f"SEARCH checkpoints {OF_TRIGGER} (trigger=? AND mission_id=? AND seq<?)",
    f"SEARCH checkpoints {OF_LIVE} (mission_id=?)",
    f"SEARCH checkpoints {OF_LIVE} (mission_id=? AND seq<?)",
    f"SEARCH checkpoints {OF_TRIGGER} (trigger=? AND mission_id=?)",
    f"SEARCH checkpoints {OF_LIVE} (mission_id=?)",
]


@pytest.mark.sqlite_only("reads SQLite's plans")
async def test_a_full_mission_finds_its_surplus_by_indices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    ask = Tx.all

    def heard(self: Tx, sql: str, /, **values: Any) -> Any:
        seen.append((sql, values))
        return ask(self, sql, **values)

    monkeypatch.setattr(Tx, "all", heard)
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=4)) as fleet:
        mission = await fleet.mission(1)
        for _ in range(5):
            await fleet.checkpoint(mission)
        steps = [
            row["detail"]
            for sql, values in seen
            if "OFFSET :never" in sql
            for row in fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **values)
        ]
    assert sorted(step for step in steps if not step.startswith("SCALAR")) == sorted(FOUND)
