"""Conflicts: two agents that changed one file are told of each other, once each."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.attention import conflicts
from fleetd.engine.repositories import Repositories
from fleetd.harness.report import PromptSubmitted, ToolFinished
from fleetd.host.file_system import PathUnanswered
from fleetd.protocol.requests.agent import AgentDeregister, AgentGet, AgentRegister
from fleetd.protocol.requests.attention import AttentionConflicts, ConflictPage, EditConflict
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.system import SystemForget, SystemStatus
from tests.support.fleet import HOUR, MINUTE, SECOND, Fleet, opened
from tests.support.git import git
from tests.support.hook_sessions import Window
from tests.support.statements import noted

pytestmark = pytest.mark.usefixtures("patience")
_ids = itertools.count()
ALICE, BOB, CAROL = (name * 8 for name in ("a1", "b2", "c3"))


def agent(session: str) -> str:
    return f"claude-{session[:8]}"


async def hook(fleet: Fleet, session: str, event: str, **fields: Any) -> str:
    """Deliver an event of a session; return the text that its agent reads."""
    fleet.clock.pass_by(3 * SECOND)
    payload = {"session_id": session, "cwd": str(fleet.project), "hook_event_name": event}
    asked = HookDeliver(f"delivery-{next(_ids):08}", "claude", json.dumps(payload | fields))
    reply = (await fleet.do(asked)).stdout
    return json.loads(reply)["hookSpecificOutput"]["additionalContext"] if reply else ""


async def edits(fleet: Fleet, session: str, file: Path | str, **fields: Any) -> str:
    call = {"file_path": str(file), "old_string": "a", "new_string": "b"}
    fields = {"tool_name": "Edit", "tool_input": call, "tool_use_id": f"t-{next(_ids)}"} | fields
    return await hook(fleet, session, "PostToolUse", **fields)


async def prompts(fleet: Fleet, session: str, **fields: Any) -> str:
    return await hook(fleet, session, "UserPromptSubmit", prompt="Go on", **fields)


async def listed(fleet: Fleet, **asked: Any) -> list[EditConflict]:
    page: ConflictPage = await fleet.do(AttentionConflicts(**asked))
    return page.conflicts


async def test_both_agents_read_it_once_in_their_next_answer(fleet: Fleet) -> None:
    form = fleet.project / "form.py"
    assert await edits(fleet, ALICE, form) == ""
    line = await edits(fleet, BOB, form)
    assert line.count("\n") == 0
    for part in (agent(BOB), agent(ALICE), "form.py", "fleetctl conflicts"):
        assert part in line
    assert "merge" not in line
    assert agent(BOB) in await prompts(fleet, ALICE)
    for session in (ALICE, BOB, ALICE, BOB):
        assert await edits(fleet, session, form) == ""
    [found] = await listed(fleet)
    assert (found.file, found.at_merge) == (str(form), False)
    assert [edit.agent_id for edit in found.edits] == [agent(BOB), agent(ALICE)]
    assert (await fleet.do(SystemStatus())).conflicts == 1


async def test_another_file_and_another_agent_are_told_too(fleet: Fleet) -> None:
    form, page = fleet.project / "form.py", fleet.project / "page.py"
    await edits(fleet, ALICE, form)
    await edits(fleet, BOB, form)
    await edits(fleet, BOB, page)
    line = await edits(fleet, ALICE, page)
    assert "form.py" in line
    assert "page.py" in line
    assert "page.py" in await prompts(fleet, BOB)
    line = await edits(fleet, CAROL, form)
    assert agent(ALICE) in line
    assert agent(BOB) in line
    assert agent(CAROL) in await prompts(fleet, ALICE)
    assert {each.file for each in await listed(fleet)} == {str(form), str(page)}
    assert len(await listed(fleet, agent_id=agent(CAROL))) == 1


async def test_after_an_hour_two_edits_are_no_conflict(fleet: Fleet) -> None:
    form = fleet.project / "form.py"
    await edits(fleet, ALICE, form)
    fleet.clock.pass_by(HOUR)
    assert await edits(fleet, BOB, form) == ""
    assert await listed(fleet) == []
    # Rows go ten minutes later at most.
    fleet.clock.pass_by(10 * MINUTE)
    await edits(fleet, BOB, form)
    [row] = fleet.sql("SELECT agent_id FROM edits")
    assert row["agent_id"] == agent(BOB)


async def test_an_agent_that_has_gone_conflicts_with_nobody(fleet: Fleet) -> None:
    form = fleet.project / "form.py"
    await edits(fleet, ALICE, form)
    await edits(fleet, BOB, form)
    await hook(fleet, BOB, "SessionEnd", reason="exit")
    assert await listed(fleet) == []
    assert await edits(fleet, CAROL, form) != ""
    assert agent(BOB) not in str(await listed(fleet))


async def test_a_subagent_is_its_sessions_agent(fleet: Fleet) -> None:
    form = fleet.project / "form.py"
    await prompts(fleet, ALICE)
    await edits(fleet, ALICE, form)
    assert await edits(fleet, ALICE, form, agent_id="helper", agent_type="Explore") == ""
    assert await listed(fleet) == []
    await edits(fleet, BOB, form)
    # The session's own agent is told, and no subagent: nobody else reads that.
    inner = {"agent_id": "helper", "agent_type": "Explore"}
    assert await edits(fleet, ALICE, fleet.project / "x.py", **inner) == ""
    assert await edits(fleet, ALICE, form, **inner) == ""
    assert agent(BOB) in await prompts(fleet, ALICE)
    assert await prompts(fleet, ALICE) == ""
    subagent = f"{agent(ALICE)}.helper"
    assert len(await listed(fleet, agent_id=subagent)) == 1


async def test_worktrees_of_one_repository_meet_at_merge(
    fleet: Fleet, repository: Path, worktree: Path
) -> None:
    await edits(fleet, ALICE, repository / "src" / "a.py", cwd=str(repository))
    line = await edits(fleet, BOB, worktree / "src" / "a.py", cwd=str(worktree))
    assert "src/a.py by" in line
    assert "meet at merge" in line
    assert str(repository / "src" / "a.py") in line
    assert str(worktree / "src" / "a.py") in await prompts(fleet, ALICE, cwd=str(repository))
    [found] = await listed(fleet)
    assert (found.file, found.at_merge) == ("src/a.py", True)
    # The file itself, now from both sides: they know. But it is in no tree of Bob's.
    told = await edits(fleet, BOB, repository / "src" / "a.py", cwd=str(worktree))
    assert told.startswith(f"{agent(BOB)} began in the work tree {worktree}")
    assert "\n" not in told
    assert await prompts(fleet, ALICE, cwd=str(repository)) == ""


async def test_other_repositories_have_other_files(fleet: Fleet, repository: Path) -> None:
    other = repository.parent / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    await edits(fleet, ALICE, repository / "src" / "a.py")
    assert await edits(fleet, BOB, other / "src" / "a.py") == ""
    assert await listed(fleet) == []


async def test_without_git_equal_real_paths_count(
    fleet: Fleet, repository: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = repository.parent / "link"
    link.symlink_to(repository)
    await edits(fleet, ALICE, repository / "src" / "a.py")
    with monkeypatch.context() as patch:
        patch.setattr(Repositories, "known_around", _unknown)
        patch.setattr(Repositories, "try_around", _nothing)
        assert await edits(fleet, BOB, worktree / "src" / "a.py") == ""
        assert agent(ALICE) in await edits(fleet, CAROL, link / "src" / "a.py")
    [found] = await listed(fleet)
    assert found.file == "src/a.py"
    assert {edit.agent_id for edit in found.edits} == {agent(ALICE), agent(CAROL)}
    # Git says it again: who was told is not told again.
    assert await edits(fleet, CAROL, repository / "src" / "a.py") == ""
    line = await edits(fleet, BOB, worktree / "src" / "a.py")
    assert agent(ALICE) in line
    assert agent(CAROL) in line


def _unknown(_self: object, _walk: object, _folder: str) -> tuple[str, None]:
    return "/", None


async def _nothing(_self: object, _folder: str) -> None:
    return None


async def test_control_characters_of_a_name_reach_nobody(fleet: Fleet) -> None:
    name = fleet.project / "form\u001b[31m\u202e\n.py"
    await edits(fleet, ALICE, name)
    line = await edits(fleet, BOB, name)
    assert line.isprintable()
    assert r"\u202e" in line


async def test_many_files_are_cut_with_a_count(fleet: Fleet) -> None:
    for number in range(8):
        await edits(fleet, ALICE, fleet.project / f"{number}.py")
    for number in range(8):
        await hook(fleet, BOB, "Stop") if number == 0 else None
        changed = str(fleet.project / f"{number}.py")
        await fleet.do(EventAppend("file_modified", agent_id=agent(BOB), data={"file": changed}))
    line = await prompts(fleet, ALICE)
    assert "and 3 more" in line
    page = await fleet.do(AttentionConflicts(limit=5))
    assert (len(page.conflicts), page.more) == (5, 3)


async def test_a_client_may_report_edits_too(fleet: Fleet) -> None:
    for name in ("alice", "bob"):
        await fleet.do(AgentRegister(name, "specialist"))
    for name in ("alice", "bob", "nobody"):
        data = {"file": str(fleet.project / "src" / ".." / "a.py")}
        await fleet.do(EventAppend("file_modified", agent_id=name, data=data))
    for data in ({}, {"file": 5}, {"file": "relative.py"}, {"file": "/" + "x" * 3_000}):
        await fleet.do(EventAppend("file_modified", agent_id="bob", data=data))
    [found] = await listed(fleet)
    assert found.file == str(fleet.project / "a.py")
    assert sorted(edit.agent_id for edit in found.edits) == ["alice", "bob"]
    await fleet.do(AgentDeregister("bob"))
    assert await listed(fleet) == []


async def test_what_is_kept_of_an_agent_is_bounded(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "KEPT", 3)
    monkeypatch.setattr(conflicts, "KEPT_CONFLICTS", 2)
    for number in range(6):
        await edits(fleet, ALICE, fleet.project / f"{number}.py")
        await edits(fleet, BOB, fleet.project / f"{number}.py")
    assert len(await listed(fleet)) == 3
    fleet.clock.pass_by(10 * MINUTE)
    for session in (ALICE, BOB):
        await prompts(fleet, session)
    kept = fleet.sql("SELECT agent_id, file FROM edits ORDER BY agent_id, file")
    expected = [str(fleet.project / f"{number}.py") for number in (3, 4, 5)]
    assert [row["file"] for row in kept] == [*expected, *expected]
    fleet.clock.pass_by(HOUR)
    await prompts(fleet, CAROL)
    assert fleet.sql("SELECT * FROM edits") == []
    told = fleet.sql("SELECT count(*) AS n FROM edit_conflicts GROUP BY agent_id")
    assert [row["n"] for row in told] == [2, 2]


async def test_many_edits_of_one_agent_hide_no_conflict_of_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "KEPT", 3)
    monkeypatch.setattr(conflicts, "MOST", 5)
    for session in (ALICE, BOB):
        await edits(fleet, session, fleet.project / "a.py")
    for number in range(8):
        await edits(fleet, CAROL, fleet.project / f"{number}.py")
    assert [each.file for each in await listed(fleet)] == [str(fleet.project / "a.py")]


async def test_a_project_that_is_forgotten_leaves_nothing_of_it(
    fleet: Fleet, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for session in (ALICE, BOB):
        await edits(fleet, session, elsewhere / "a.py")
        await edits(fleet, session, fleet.project / "a.py")
    await fleet.do(SystemForget(project_dir=str(elsewhere)))
    assert [each.file for each in await listed(fleet)] == [str(fleet.project / "a.py")]
    assert "elsewhere" not in str(fleet.sql("SELECT * FROM edit_conflicts"))
    await fleet.do(SystemForget(project_dir=str(fleet.project)))
    assert fleet.sql("SELECT * FROM edits") == fleet.sql("SELECT * FROM edit_conflicts") == []


def others(prompt: str) -> list[str]:
    return prompt.partition("### Others\n")[2].partition("\n\n")[0].splitlines()


async def test_a_briefing_has_one_line_of_it(fleet: Fleet) -> None:
    await prompts(fleet, ALICE)
    before = (await fleet.do(RecoveryContextGet(agent_id=agent(ALICE)))).prompt
    assert "### Others" not in before
    await edits(fleet, ALICE, fleet.project / "form.py")
    await edits(fleet, BOB, fleet.project / "form.py")
    prompt = (await fleet.do(RecoveryContextGet(agent_id=agent(ALICE)))).prompt
    told = "- Changed within the hour also by others: form.py (by"
    assert others(prompt) == [f"{told} {agent(BOB)})"]
    # That of nobody in particular is of the whole mission.
    mission_id = (await fleet.do(AgentGet(agent(ALICE)))).mission_id
    prompt = (await fleet.do(RecoveryContextGet(mission_id))).prompt
    assert others(prompt) == [f"{told} {agent(BOB)}, {agent(ALICE)})"]


async def test_a_briefing_tells_of_a_shared_directory_beside_a_worktree(
    fleet: Fleet, repository: Path, worktree: Path
) -> None:
    await edits(fleet, ALICE, repository / "src" / "a.py", cwd=str(repository))
    await edits(fleet, CAROL, worktree / "src" / "a.py", cwd=str(worktree))
    prompt = (await fleet.do(RecoveryContextGet(agent_id=agent(ALICE)))).prompt
    assert "; will meet at merge)" in prompt
    await edits(fleet, BOB, repository / "src" / "a.py", cwd=str(repository))
    prompt = (await fleet.do(RecoveryContextGet(agent_id=agent(ALICE)))).prompt
    assert "; some in one directory, others will meet at merge)" in prompt


async def test_edits_that_meet_nobody_cost_few_statements(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await edits(fleet, ALICE, fleet.project / "form.py")
    statements = noted(monkeypatch)
    await hook(fleet, ALICE, "PreToolUse", tool_name="Read", tool_input={}, tool_use_id="r-1")
    assert not [sql for sql in statements if "edit" in sql and "FROM sessions" not in sql]
    await edits(fleet, ALICE, fleet.project / "page.py")
    asked = [sql for sql in statements if "edit" in sql and "FROM sessions" not in sql]
    assert len(asked) <= 4, "\n".join(asked)


async def test_a_file_system_that_does_not_answer_leaves_the_path_that_was_given(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hung:
        async def run(self, *_: object, **__: object) -> None:
            raise PathUnanswered("/mnt/a.py", "/mnt", "/mnt/a.py")

        run_short = real_path = run

    monkeypatch.setattr(fleet.engine.projects, "_files", Hung())
    await edits(fleet, ALICE, "/mnt/a.py")
    assert agent(ALICE) in await edits(fleet, BOB, "/mnt/a.py")
    assert [each.file for each in await listed(fleet)] == ["/mnt/a.py"]


async def test_what_is_not_to_be_recorded_is_not_compared(
    tmp_path: Path,
) -> None:
    hidden = tmp_path / "hidden"
    async with opened(tmp_path / "home", project_ignore=[str(hidden)]) as fleet:
        await edits(fleet, ALICE, hidden / "a.py")
        assert await edits(fleet, BOB, hidden / "a.py") == ""
        assert fleet.sql("SELECT * FROM edits") == []


async def test_an_edit_from_the_spool_counts_when_it_was(fleet: Fleet) -> None:
    changed = ToolFinished(tool="Edit", call_id="t-1", edited=("/srv/a.py", "/srv/b.py"))
    ann, bob, cat = (Window(fleet, name * 8) for name in ("a", "b", "c"))
    for window in (ann, bob, cat):
        await window.tell(PromptSubmitted("Go on"))
    assert (await ann.tell(changed)).lines == []
    # Nobody reads the reply to one from the spool: the next one tells.
    late = await bob.tell(changed, happened_ms=fleet.clock() - 30 * MINUTE)
    assert late.lines == []
    [line] = (await bob.tell(PromptSubmitted("Go on"))).lines
    assert "2026-01-05T12:00:00.000Z" in line
    [line] = (await ann.tell(PromptSubmitted("Go on"))).lines
    assert "2026-01-05T11:30:00.000Z" in line
    await cat.tell(changed, happened_ms=fleet.clock() - 3 * HOUR)
    assert (await cat.tell(PromptSubmitted("Go on"))).lines == []
    assert all(len(each.edits) == 2 for each in await listed(fleet))
