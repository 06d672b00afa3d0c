"""Locks that edits take: for the turn of their agent, for the file, and for nobody else's turn."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.config import Locks
from fleetd.domain.agents.agent_loss import living_processes, process_ended
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire, LockCheck, LockRelease
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.protocol.timestamps import to_ms
from tests.support.fleet import MINUTE, SECOND, Fleet, opened
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("patience")
_ids = itertools.count()
ALICE, BOB = "a1" * 8, "b2" * 8
BOTH = ("auto-locks", "enforce-locks")


async def hook(
    fleet: Fleet, session: str, event: str, *, args: tuple[str, ...] = BOTH, **fields: Any
) -> str:
    payload = {"session_id": session, "cwd": str(fleet.project), "hook_event_name": event}
    told = json.dumps(payload | fields)
    request = HookDeliver(f"delivery-{next(_ids):08}", "claude", told, args=[*args])
    return (await fleet.do(request)).stdout


async def begins(fleet: Fleet, session: str, *files: str, **more: Any) -> str:
    """Begin an edit; return what the agent is told if it is denied."""
    call: dict[str, Any] = {"file_path": str(fleet.project / files[0])}
    name = "Edit"
    said = await hook(
        fleet,
        session,
        "PreToolUse",
        tool_name=name,
        tool_input=call | {"old_string": "a", "new_string": "b"},
        tool_use_id=f"t-{next(_ids)}",
        **more,
    )
    if not said:
        return ""
    return str(json.loads(said)["hookSpecificOutput"]["permissionDecisionReason"])


async def held(fleet: Fleet) -> list[tuple[str, str]]:
    return sorted((lock.file.rpartition("/")[2], lock.held_by) for lock in await fleet.locks())


def agent(session: str) -> str:
    return f"claude-{session[:8]}"


async def test_two_agents_cannot_edit_one_file_though_nobody_asked(fleet: Fleet) -> None:
    assert await begins(fleet, ALICE, "a.py") == ""
    [lock] = await fleet.locks()
    assert (lock.held_by, lock.purpose, lock.automatic) == (agent(ALICE), "edit under way", True)
    assert lock.timeout_ms == fleet.engine.config.locks.automatic_ms == 5 * MINUTE
    refused = await begins(fleet, BOB, "a.py")
    assert f"is locked by {agent(ALICE)}" in refused
    assert "edit under way" in refused
    assert await begins(fleet, BOB, "b.py") == ""
    assert await held(fleet) == [("a.py", agent(ALICE)), ("b.py", agent(BOB))]

    await hook(fleet, ALICE, "Stop")
    assert await held(fleet) == [("b.py", agent(BOB))]
    assert await begins(fleet, BOB, "a.py") == ""


@pytest.mark.parametrize("event", ["Stop", "StopFailure", "UserPromptSubmit", "SessionEnd"])
async def test_the_end_of_a_turn_gives_back_what_edits_took_and_no_more(
    fleet: Fleet, event: str
) -> None:
    await begins(fleet, ALICE, "a.py")
    await fleet.do(LockAcquire(agent(ALICE), str(fleet.project / "mine.py")))
    fields = {"UserPromptSubmit": {"prompt": "Go on"}, "StopFailure": {"error": "overloaded"}}
    # Hooks of other events do not say that locks are automatic.
    await hook(fleet, ALICE, event, args=(), **fields.get(event, {}))
    left = [] if event == "SessionEnd" else [("mine.py", agent(ALICE))]
    assert await held(fleet) == left


async def test_further_edits_renew_and_other_activity_does_not(fleet: Fleet) -> None:
    await begins(fleet, ALICE, "a.py")
    [first] = await fleet.locks()
    fleet.clock.pass_by(MINUTE)
    await hook(fleet, ALICE, "PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    assert (await fleet.locks())[0].expires_at == first.expires_at
    await begins(fleet, ALICE, "a.py")
    [again] = await fleet.locks()
    assert again.id == first.id
    assert to_ms(again.expires_at or "") == fleet.clock() + 5 * MINUTE
    fleet.clock.pass_by(5 * MINUTE)
    assert await begins(fleet, BOB, "a.py") == ""
    assert await held(fleet) == [("a.py", agent(BOB))]


async def test_a_lock_that_was_asked_for_stays_as_it_is(fleet: Fleet) -> None:
    await hook(fleet, ALICE, "UserPromptSubmit", prompt="Go")
    own = await fleet.do(LockAcquire(agent(ALICE), f"{fleet.project}/src/", purpose="parser"))
    assert await begins(fleet, ALICE, "src/a.py") == ""
    assert [lock.id for lock in await fleet.locks()] == [own.id]
    # Who asks for what an edit took keeps it beyond the turn.
    await begins(fleet, ALICE, "b.py")
    asked = await fleet.do(LockAcquire(agent(ALICE), f"{fleet.project}/b.py"))
    assert not asked.automatic
    await hook(fleet, ALICE, "Stop")
    assert {lock.id for lock in await fleet.locks()} == {own.id, asked.id}


async def test_a_file_of_anothers_pattern_is_denied_and_not_taken(fleet: Fleet) -> None:
    await hook(fleet, BOB, "UserPromptSubmit", prompt="Go")
    theirs = await fleet.do(
        LockAcquire(agent(BOB), pattern="src/**", cwd=str(fleet.project), mode="shared")
    )
    assert f"is locked by {agent(BOB)}" in await begins(fleet, ALICE, "src/deep/a.py")
    assert [lock.id for lock in await fleet.locks()] == [theirs.id]
    await fleet.do(LockRelease(theirs.id, agent(BOB)))
    assert await begins(fleet, ALICE, "src/deep/a.py") == ""


async def test_who_waits_for_more_comes_before_an_edit_of_a_part(fleet: Fleet) -> None:
    await hook(fleet, BOB, "UserPromptSubmit", prompt="Go")
    await fleet.agents(await fleet.mission(1), "dave", "erin")
    held_by_dave = await fleet.do(LockAcquire("dave", f"{fleet.project}/src/x.py"))
    async with trio.open_nursery() as nursery:
        wanted = LockAcquire("erin", f"{fleet.project}/src/", wait_ms=MINUTE)
        granted: list[Lock] = []

        async def wait() -> None:
            granted.append(await fleet.do(wanted))

        nursery.start_soon(wait)
        await fleet.settle()
        for session in (ALICE, BOB):
            refused = await begins(fleet, session, "src/y.py")
            assert refused.startswith(f"erin waits for a lock on {fleet.project}/src/, so ")
            assert f"--agent {agent(session)} --wait-ms" in refused
        assert await begins(fleet, ALICE, "lib/y.py") == ""
        await fleet.do(LockRelease(held_by_dave.id, "dave"))
    assert granted[0].held_by == "erin"
    assert "is locked by erin" in await begins(fleet, ALICE, "src/y.py")


async def test_subagents_share_what_edits_of_their_session_took(fleet: Fleet) -> None:
    await begins(fleet, ALICE, "a.py")
    assert await begins(fleet, ALICE, "a.py", agent_id="sub1", agent_type="Explore") == ""
    assert await begins(fleet, ALICE, "b.py", agent_id="sub1", agent_type="Explore") == ""
    assert await held(fleet) == [("a.py", agent(ALICE)), ("b.py", agent(ALICE))]
    await hook(fleet, ALICE, "SubagentStop", agent_id="sub1", agent_type="Explore")
    assert len(await held(fleet)) == 2
    await hook(fleet, ALICE, "Stop")
    assert await held(fleet) == []


async def test_a_process_that_ends_leaves_none_behind(fleet: Fleet) -> None:
    await begins(fleet, ALICE, "a.py")
    await fleet.do(LockAcquire(agent(ALICE), f"{fleet.project}/mine.py"))
    [process] = await fleet.engine.read(living_processes)
    assert await fleet.engine.write(process_ended, process)
    assert await held(fleet) == [("mine.py", agent(ALICE))]


async def test_without_the_option_edits_take_nothing(fleet: Fleet) -> None:
    assert await begins(fleet, ALICE, "a.py", args=("enforce-locks",)) == ""
    assert await fleet.locks() == []


async def test_the_setting_serves_agent_clis_that_tell_only_of_what_was_changed(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, locks=Locks(automatic=True, automatic_ms=MINUTE)) as fleet:
        edit = {"file_path": str(fleet.project / "a.py"), "edits": [{"old_string": "a"}]}
        payload = {"hook_event_name": "afterFileEdit", "conversation_id": "c-1"} | edit
        payload["workspace_roots"] = [str(fleet.project)]
        await fleet.do(HookDeliver("delivery-cursor-1", "cursor", json.dumps(payload)))
        locked = [(lock.automatic, lock.timeout_ms) for lock in await fleet.locks()]
        assert locked == [(True, MINUTE)]


async def test_missions_that_lock_by_project_share_automatic_locks_too(fleet: Fleet) -> None:
    git(fleet.project, "init", "-q")
    git(fleet.project, "commit", "-q", "--allow-empty", "-m", "first")
    tree = fleet.project.parent / "tree"
    git(fleet.project, "worktree", "add", "-q", str(tree))
    mission = await fleet.mission(1)
    await fleet.do(MissionUpdate(mission.id, metadata={"lock_scope": "project"}))
    assert await begins(fleet, ALICE, "a.py") == ""
    found = (await fleet.do(LockCheck(str(tree / "a.py")))).locks
    assert [lock.held_by for lock in found] == [agent(ALICE)]
    fleet.clock.pass_by(SECOND)
