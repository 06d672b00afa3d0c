"""Which run is meant: by its id, by its agent, by the directory that it works in."""

import re
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.artifacts.ingest import stored
from fleetd.domain.core.ids import Key
from fleetd.domain.snapshots.runs import run_of_session
from fleetd.harness.report import PromptSubmitted, SessionEnded, SessionStarted
from fleetd.protocol.errors import IntegrityMismatch, InvalidParams, InvalidState, NotFound
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.snapshot import (
    SnapshotGet,
    SnapshotLatest,
    SnapshotList,
    SnapshotRecord,
)
from fleetd.protocol.types import RUN_ID
from tests.support.fleet import Fleet, opened
from tests.support.hook_sessions import Window
from tests.support.snapshots import at_once, record


async def session(fleet: Fleet, session_id: str, cwd: str, **report: Any) -> Window:
    window = Window(fleet, session_id, cwd=cwd, **report)
    await window.tell(SessionStarted("startup"), PromptSubmitted("Add login"))
    return window


@pytest.mark.parametrize(
    ("name", "subagent", "run"),
    [
        ("777e68b4-1ad1-4f6c-9d81-64d0cae95a84", "", "777e68b4-1ad1-4f6c-9d81-64d0cae95a84"),
        ("ses_1", "", "ses_1"),
        ("ses_1", "toolu_9", "ses_1.toolu_9"),
        ("x" * 64, "", "x" * 64),
    ],
)
def test_a_run_is_called_after_its_session(name: str, subagent: str, run: str) -> None:
    assert run_of_session(Key("claude", name, subagent)) == run


@pytest.mark.parametrize(
    "name",
    [
        *("msn-1a2b3c4d", "msn-msn-" + "x" * 70, "msn-" * 30, "../../etc", "/", ".", ".."),
        *(".hidden", "." * 70, "x" * 65, "a b", "a\n", "ü", "", "-\0", "\ud800", "CON\\..\\x"),
    ],
)
def test_a_session_whose_name_cannot_stand_in_a_path_has_a_run_that_can(name: str) -> None:
    run = run_of_session(Key("claude", name))
    assert re.match(RUN_ID, run)
    assert re.search(r"-[0-9a-f]{8}\Z", run)
    assert run == run_of_session(Key("claude", name))
    assert run != run_of_session(Key("claude", name + "."))


async def test_a_run_is_found_by_its_agent_and_its_session(fleet: Fleet) -> None:
    window = await session(fleet, "session-one", "/p")
    agent = "claude-session-"
    by_agent = await at_once(fleet, None, agent_id=agent)
    assert (by_agent.run_id, by_agent.agent_id) == (window.session_id, agent)
    assert (await at_once(fleet, window.session_id)).snapshot_id == by_agent.snapshot_id
    assert (await fleet.do(SnapshotLatest(agent_id=agent))).snapshot_id == by_agent.snapshot_id


async def test_a_subagent_has_a_run_of_its_own(fleet: Fleet) -> None:
    await session(fleet, "session.one", "/p")
    below = await session(fleet, "session.one", "/p", subagent="task.7")
    snapshot = await at_once(fleet, "session.one.task.7")
    assert snapshot.agent_id == (await below.tell(PromptSubmitted("On"))).agent_id
    assert (await at_once(fleet, "session.one")).agent_id != snapshot.agent_id


async def test_a_run_whose_name_was_cut_is_found_again(fleet: Fleet) -> None:
    window = await session(fleet, "/a/path/of/a session", "/p")
    run_id = (await at_once(fleet, None, cwd="/p")).run_id
    assert run_id == run_of_session(Key("claude", window.session_id))
    assert (await record(fleet, run_id)).agent_id == "claude-apathofa"


async def test_the_only_run_under_way_in_a_directory_is_meant(fleet: Fleet) -> None:
    await session(fleet, "here", "/p/app")
    await session(fleet, "there", "/p/application")
    for cwd in ("/p/app", "/p/app/", "/p/app/src/deep"):
        assert (await at_once(fleet, None, cwd=cwd)).run_id == "here"
    assert (await fleet.do(SnapshotLatest(cwd="/p/app"))).run_id == "here"


async def test_the_run_of_a_subagent_is_not_a_run_of_the_directory(fleet: Fleet) -> None:
    await session(fleet, "here", "/p")
    await session(fleet, "here", "/p", subagent="task-7")
    assert (await at_once(fleet, None, cwd="/p")).run_id == "here"


async def test_several_runs_of_a_directory_are_listed_and_none_is_chosen(fleet: Fleet) -> None:
    await session(fleet, "one", "/p")
    await session(fleet, "two", "/p")
    with pytest.raises(InvalidState) as caught:
        await at_once(fleet, None, cwd="/p")
    assert "2 runs are in progress in /p" in caught.value.message
    assert "one (claude-one)" in caught.value.message
    assert "run_id" in caught.value.hint
    assert sorted(each["run_id"] for each in caught.value.values["candidates"]) == ["one", "two"]
    with pytest.raises(InvalidState):
        await fleet.do(SnapshotLatest(cwd="/p"))
    assert fleet.sql("SELECT count(*) AS n FROM snapshots") == [{"n": 0}]


async def test_in_a_directory_where_nobody_works_nothing_is_recorded(fleet: Fleet) -> None:
    window = await session(fleet, "one", "/p")
    first = await at_once(fleet, None, cwd="/p")
    await window.tell(SessionEnded())
    with pytest.raises(InvalidState) as caught:
        await at_once(fleet, None, cwd="/p")
    assert caught.value.message == "No run is in progress in /p."
    assert "--run" in caught.value.hint
    # What was recorded last can still be looked at.
    latest = await fleet.do(SnapshotLatest(cwd="/p/src"))
    assert (latest.run_id, latest.status) == (first.run_id, "paused")


async def test_the_newest_of_a_directory_where_nothing_was_recorded_is_not_found(
    fleet: Fleet,
) -> None:
    with pytest.raises(NotFound) as caught:
        await fleet.do(SnapshotLatest(cwd="/q"))
    assert caught.value.values["noun"] == "run"
    assert "snapshot list" in caught.value.hint


async def test_a_request_that_names_no_run_says_what_to_give(fleet: Fleet) -> None:
    for request in (SnapshotRecord(), SnapshotLatest()):
        with pytest.raises(InvalidParams) as caught:
            await fleet.do(request)  # type: ignore[arg-type]
        assert caught.value.values["field"] == "run_id"
        assert "agent_id" in caught.value.hint


async def test_an_agent_nobody_knows_is_not_found(fleet: Fleet) -> None:
    for request in (SnapshotRecord(agent_id="ann"), SnapshotLatest(agent_id="ann")):
        with pytest.raises(NotFound) as caught:
            await fleet.do(request)  # type: ignore[arg-type]
        assert caught.value.values["noun"] == "agent"


async def test_an_agent_without_a_session_needs_a_run_id(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("ann", "specialist"))
    with pytest.raises(InvalidState) as caught:
        await at_once(fleet, None, agent_id="ann")
    assert "run_id" in caught.value.hint
    named = await at_once(fleet, "my-run", agent_id="ann")
    assert named.agent_id == "ann"
    await fleet.do(AgentDeregister("ann"))
    latest = await fleet.do(SnapshotLatest(agent_id="ann"))
    assert (latest.run_id, latest.status) == ("my-run", "paused")


async def test_a_run_that_has_no_snapshot_is_not_found(fleet: Fleet) -> None:
    for request in (SnapshotLatest("nobody"), SnapshotList("nobody")):
        with pytest.raises(NotFound) as caught:
            await fleet.do(request)  # type: ignore[arg-type]
        assert (caught.value.values["noun"], caught.value.values["id"]) == ("run", "nobody")
    await session(fleet, "known", "/p")
    assert (await fleet.do(SnapshotList("known"))).total == 0


async def test_a_snapshot_that_does_not_exist_is_not_found(fleet: Fleet) -> None:
    with pytest.raises(NotFound) as caught:
        await fleet.do(SnapshotGet("cp_20260105T120000000Z_999"))
    assert "fleetctl snapshot list" in caught.value.hint


async def test_lists_have_a_limit_and_say_how_many_there_are(fleet: Fleet) -> None:
    for run in ("a", "b", "a"):
        await record(fleet, run)
    page = await fleet.do(SnapshotList(limit=2))
    assert (page.total, [each.run_id for each in page.snapshots]) == (3, ["a", "b"])
    page = await fleet.do(SnapshotList("a"))
    assert (page.total, [each.run_id for each in page.snapshots]) == (2, ["a", "a"])


async def test_a_directory_that_is_ignored_has_no_snapshots(tmp_path: Path) -> None:
    async with opened(tmp_path, project_ignore=["/secret"]) as fleet:
        with pytest.raises(InvalidState) as caught:
            await at_once(fleet, None, cwd="/secret/app")
        assert caught.value.values["project_ignore"] == "/secret"


async def test_a_damaged_row_is_refused_by_name(fleet: Fleet) -> None:
    """Only the row is looked at here: its file is of no help when it is gone as well."""
    snapshot = await record(fleet)
    await fleet.settle()
    fleet.sql("UPDATE snapshots SET status = 'completed'")
    with pytest.raises(IntegrityMismatch) as caught:
        await fleet.engine.read(stored, "snapshot", snapshot.snapshot_id)
    assert caught.value.values["snapshot_id"] == snapshot.snapshot_id
    assert f"fleetctl snapshot verify {snapshot.snapshot_id} --repair" in caught.value.hint
