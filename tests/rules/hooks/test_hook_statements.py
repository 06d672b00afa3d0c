"""What a hook asks of the store: each row once, and one upkeep for all that it tells."""

from typing import Any

import apsw
import pytest

from fleetd.domain.core import event_log
from fleetd.domain.core.context import Context
from fleetd.domain.core.tx import Tx
from fleetd.harness.report import PromptSubmitted, ToolFinished
from fleetd.protocol.requests.event import EventList
from tests.rules.hooks.test_hook_delivery import compact, deliver
from tests.support.fleet import MINUTE, SECOND, Fleet
from tests.support.hook_sessions import Window
from tests.support.statements import noted

EDIT = {"file_path": "/home/user/project/form.py", "old_string": "a", "new_string": "b"}
CALL = {"tool_name": "Edit", "tool_input": EDIT}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the statements of rules from now on; a transaction adds its beginning and its end."""
    return noted(monkeypatch)


@pytest.mark.parametrize(
    ("event", "fields", "most"),
    [
        ("PreToolUse", CALL | {"tool_use_id": "t-2"}, 11),  # one of them about the edit
        ("PostToolUse", CALL | {"tool_use_id": "t-1"}, 15),  # four of them about the edit
        ("UserPromptSubmit", {"prompt": "Go on"}, 13),
        ("Stop", {"last_assistant_message": "Done"}, 16),
        ("SessionStart", {"source": "resume"}, 10),
        ("Notification", {"message": "Look"}, 7),
    ],
)
async def test_a_hook_of_a_session_under_way_needs_few_statements(
    fleet: Fleet, statements: list[str], event: str, fields: dict[str, Any], most: int
) -> None:
    await deliver(fleet, "SessionStart", source="startup")
    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    await deliver(fleet, "PreToolUse", **CALL, tool_use_id="t-1")
    fleet.clock.pass_by(3 * SECOND)
    statements.clear()
    await deliver(fleet, event, **fields)
    assert len(statements) <= most, "\n".join(statements)
    assert len(set(statements)) == len(statements) - (event == "SessionStart")  # the scans


@pytest.mark.sqlite_only("a server prepares statements its own way")
async def test_no_statement_of_a_hook_is_prepared_again(fleet: Fleet) -> None:
    prepared: list[tuple[Any, ...]] = []

    def note(*asked: Any) -> int:
        prepared.append(asked)
        return apsw.SQLITE_OK

    def watch(tx: Tx, ctx: Context) -> None:
        execute: Any = tx._execute
        execute._connection.authorizer = note  # SQLite asks it whenever it prepares a statement

    async def tool_call(number: int) -> None:
        fleet.clock.pass_by(3 * SECOND)
        await deliver(fleet, "PreToolUse", **CALL, tool_use_id=f"t-{number}")
        await deliver(fleet, "PostToolUse", **CALL, tool_use_id=f"t-{number}")

    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    await fleet.engine.write(watch)
    for number in range(3):
        await tool_call(number)
    assert {asked[1] for asked in prepared} >= {"sessions", "events", "hook_deliveries"}
    prepared.clear()
    for number in range(3, 6):
        await tool_call(number)
    tables = {asked[1] for asked in prepared}
    assert not tables & {"sessions", "agents", "missions", "events", "hook_deliveries", "locks"}


async def test_a_subagents_hook_reads_its_sessions_window_too(
    fleet: Fleet, statements: list[str]
) -> None:
    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    await deliver(fleet, "PreToolUse", **CALL, tool_use_id="t-1", agent_id="helper")
    fleet.clock.pass_by(3 * SECOND)
    statements.clear()
    await deliver(fleet, "PostToolUse", **CALL, tool_use_id="t-1", agent_id="helper")
    assert len(statements) <= 16, "\n".join(statements)


async def test_both_events_of_a_tool_call_come_in_order_and_are_kept_up_once(fleet: Fleet) -> None:
    await deliver(fleet, "UserPromptSubmit", prompt="Add login")
    await compact(fleet)
    before = (await fleet.seqs())[-1]
    fleet.clock.pass_by(MINUTE)
    await deliver(fleet, "PostToolUse", **CALL, tool_use_id="t-1")
    told = (await fleet.do(EventList(since=before))).events
    kinds = ["file_modified", "tool_finished", "recovery_confirmed"]
    assert [event.type for event in told] == kinds
    [mission] = fleet.sql("SELECT last_activity_seq, last_activity_at FROM missions")
    assert mission == {"last_activity_seq": told[1].seq, "last_activity_at": fleet.clock.now}
    [agent] = fleet.sql("SELECT last_seen_at FROM agents")
    assert agent == {"last_seen_at": fleet.clock.now}


async def test_the_events_of_a_call_that_edits_very_many_files_keep_their_order(
    fleet: Fleet,
) -> None:
    window = Window(fleet)
    await window.tell(PromptSubmitted("Rename it everywhere"))
    files = tuple(f"/home/user/project/{number}.py" for number in range(2 * event_log.AT_ONCE + 7))
    recorded = await window.tell(ToolFinished(tool="apply_patch", call_id="t-1", edited=files))
    page = await fleet.do(EventList(recorded.mission_id, "file_modified", limit=1_000))
    assert tuple(event.data["file"] for event in page.events) == files
    newest = (await fleet.events())[-1]
    assert newest.type == "tool_finished"
    [row] = fleet.sql("SELECT last_activity_seq FROM missions")
    assert row["last_activity_seq"] == newest.seq


async def test_the_leases_of_an_agent_that_nobody_registered_are_prolonged_too(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(1)
    lock = await fleet.lock(mission, "a.py", "ghost", timeout_ms=10 * MINUTE)
    fleet.clock.pass_by(MINUTE)
    await fleet.happen(1, agent_id="ghost")
    [row] = fleet.sql("SELECT expires_at FROM locks WHERE id = :id", id=lock.id)
    assert row["expires_at"] > lock.expires_at
    fleet.clock.pass_by(MINUTE)
    await fleet.agents(mission, "ghost")
    [again] = fleet.sql("SELECT expires_at FROM locks WHERE id = :id", id=lock.id)
    assert again["expires_at"] > row["expires_at"]
