"""``attention.list``: who is listed, in which order, and with what; where each works in Git."""

import json
from pathlib import Path

import apsw
import pytest
import trio

from fleetd.domain.attention.overview import agent_states
from fleetd.host.file_system import PathUnanswered
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.attention import AgentState, AttentionList
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.mission import MissionComplete
from fleetd.protocol.requests.sortie import SortieStart
from tests.rules.system.test_growth import StatementSteps
from tests.support.fleet import HOUR, MINUTE, SECOND, Fleet, opened
from tests.support.git import git
from tests.support.hook_payloads import Cli


async def listed(fleet: Fleet, **given: object) -> list[AgentState]:
    return (await fleet.do(AttentionList(**given))).agents  # type: ignore[arg-type]


async def place(fleet: Fleet, directory: Path | str) -> tuple[str | None, str | None]:
    """Return what is told of the work tree and the branch of an agent in a directory."""
    await fleet.do(AgentRegister("here", "specialist", cwd=str(directory)))
    [state] = await listed(fleet, agent_id="here")
    return state.worktree, state.branch


async def test_the_most_urgent_come_first_then_those_that_wait_longest(fleet: Fleet) -> None:
    bash = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "1"}
    ask = {"tool_name": "AskUserQuestion", "tool_input": {"question": "?"}, "tool_use_id": "1"}
    ends = {
        "works": ("PreToolUse", bash),
        "finished": ("Stop", {}),
        "failed": ("StopFailure", {"error": "overloaded"}),
        "limit": ("StopFailure", {"error": "rate_limit"}),
        "asks": ("PreToolUse", ask),
        "may": ("PermissionRequest", bash),
        "may-too": ("PermissionRequest", bash),
    }
    for name, (event, fields) in ends.items():
        cli = Cli(fleet, session=name)
        await cli.tell("UserPromptSubmit", prompt="Go")
        await cli.tell(event, **fields)
        fleet.clock.pass_by(MINUTE)
    order = [state.agent_id.removeprefix("claude-") for state in await listed(fleet)]
    assert order == ["may", "may-too", "asks", "failed", "limit", "works", "finished"]
    waiting = await listed(fleet, waiting=True)
    assert [state.agent_id for state in waiting] == [f"claude-{name}" for name in order[:5]]
    assert [state.agent_id for state in await listed(fleet, limit=2)] == [
        "claude-may",
        "claude-may-too",
    ]
    mission = (await listed(fleet))[0].mission_id
    assert {state.mission_id for state in await listed(fleet, mission_id=mission)} == {mission}


async def test_what_an_agent_does_beside_what_it_needs(fleet: Fleet) -> None:
    cli = Cli(fleet)
    await cli.tell("UserPromptSubmit", prompt="Add a login")
    prompted = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    todos = [
        {"content": "Read", "status": "completed"},
        {"content": "Write the form" + "!" * 300, "status": "in_progress"},
        {"content": "Test", "status": "pending"},
    ]
    await cli.tell("PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})
    for file in ("a.py", "b.py", "a.py"):
        await cli.tell(
            "PostToolUse",
            tool_name="Edit",
            tool_input={"file_path": f"{fleet.project}/{file}"},
            tool_use_id=f"{file}-{fleet.clock.ms}",
        )
    await cli.tell(
        "PreToolUse", tool_name="Bash", tool_input={"command": "make\x1b[2J\nrm"}, tool_use_id="9"
    )
    state = await cli.state()
    assert state.doing is not None
    assert state.step is not None
    assert (state.doing.what, state.doing.text, state.doing.ended) == ("command", "make[2J", False)
    assert (state.status, state.needs, state.since) == ("active", "none", fleet.clock.now)
    assert (state.step.number, state.step.total, len(state.step.title)) == (2, 3, 200)
    assert (state.files_changed, state.prompted_at) == (2, prompted)
    assert (state.mission, state.cwd) == ("Add a login", str(fleet.project))
    assert (state.harness, state.session_id) == ("claude", cli.session)
    fleet.clock.pass_by(HOUR + SECOND)
    assert (await cli.state()).files_changed == 0


async def test_who_is_gone_or_lost_with_a_mission_that_is_over_is_not_listed(fleet: Fleet) -> None:
    mission = await fleet.mission(0)
    await fleet.agents(mission, "spec-1")
    fleet.sql("UPDATE agents SET status = 'lost', needs = 'lost'")
    assert [state.agent_id for state in await listed(fleet)] == ["spec-1"]
    await fleet.do(MissionComplete(mission.id))
    assert await listed(fleet) == []
    assert await listed(fleet, agent_id="nobody") == []


async def test_of_lost_agents_the_newest_is_first_and_the_old_ones_hide_nobody_at_work(
    fleet: Fleet,
) -> None:
    mission = await fleet.mission(0)
    await fleet.agents(mission, "long-ago", "before", "now", "works")
    lost = {"long-ago": fleet.clock.now}
    fleet.clock.pass_by(24 * HOUR)
    lost["before"] = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    lost["now"] = fleet.clock.now
    for agent_id, at in lost.items():
        fleet.sql(
            "UPDATE agents SET status = 'lost', needs = 'lost', needs_since = :at WHERE id = :id",
            at=at,
            id=agent_id,
        )
    order = [state.agent_id for state in await listed(fleet)]
    assert order == ["now", "before", "works", "long-ago"]
    page = await fleet.do(AttentionList(limit=3))
    assert ([state.agent_id for state in page.agents], page.more) == (order[:3], 1)


async def test_a_call_that_changed_a_file_is_told_by_the_file(fleet: Fleet) -> None:
    cli = Cli(fleet)
    edit = {"file_path": f"{fleet.project}/a.py"}
    for event in ("PreToolUse", "PostToolUse"):
        await cli.tell(event, tool_name="Edit", tool_input=edit, tool_use_id="t")
    doing = (await cli.state()).doing
    assert doing is not None
    assert (doing.what, doing.text, doing.ended) == ("edit", f"{fleet.project}/a.py", True)


async def test_what_was_done_long_ago_is_looked_for_so_far_only(fleet: Fleet) -> None:
    await fleet.do(AgentRegister("spec-1", "specialist"))
    await fleet.do(EventAppend("prompt_submitted", agent_id="spec-1", data={"prompt": "Go"}))
    [before] = await listed(fleet)
    await fleet.happen(1_001, agent_id="spec-1")
    [after] = await listed(fleet)
    assert before.prompted_at is not None
    assert (after.prompted_at, after.doing) == (None, None)


# --- where ----------------------------------------------------------------------------------------


async def test_a_branch_of_a_repository_and_of_a_worktree_of_it(
    fleet: Fleet, repository: Path, worktree: Path
) -> None:
    assert await place(fleet, repository / "src") == (str(repository), "main")
    assert await place(fleet, worktree) == (str(worktree), "topic")


async def test_a_commit_that_is_checked_out_without_a_branch(
    fleet: Fleet, repository: Path
) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    commit = (repository / ".git" / "HEAD").read_text()
    assert await place(fleet, repository) == (str(repository), commit[:12])


async def test_a_submodule_has_a_branch_of_its_own(
    fleet: Fleet, repository: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    git(tmp_path, "clone", "--quiet", str(repository), str(inner))
    allow = ("-c", "protocol.file.allow=always")
    git(repository, *allow, "submodule", "--quiet", "add", str(inner), "lib")
    git(repository / "lib", "checkout", "--quiet", "-b", "own")
    assert (repository / "lib" / ".git").read_text().startswith("gitdir: ../")
    assert await place(fleet, repository / "lib") == (str(repository / "lib"), "own")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".git", "gitdir: \x00\n"),
        (".git", "gitdir: /nowhere\n"),
        (".git", "what is this"),
        (".git/HEAD", ""),
        (".git/HEAD", "ref: refs/heads/.invalid\n"),
    ],
)
async def test_what_is_no_repository_after_all_has_no_branch(
    fleet: Fleet, tmp_path: Path, file: str, text: str
) -> None:
    root = tmp_path / "odd"
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(text)
    assert await place(fleet, root) == (str(root), None)


async def test_a_directory_without_git_or_that_is_not_there_has_none(
    fleet: Fleet, tmp_path: Path
) -> None:
    assert await place(fleet, tmp_path) == (None, None)
    assert await place(fleet, "/no/such/place") == (None, None)


async def test_a_directory_on_a_mount_that_hangs_goes_without_and_holds_up_nobody(
    fleet: Fleet, repository: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    real = fleet.engine.files.run

    async def hangs(work, path, *, seconds):  # type: ignore[no-untyped-def]
        if path.startswith("/mnt/"):
            await trio.sleep(seconds)
            raise PathUnanswered(path, path, path)
        return await real(work, path, seconds=seconds)

    for number in range(50):
        await fleet.do(AgentRegister(f"far-{number}", "specialist", cwd=f"/mnt/{number}"))
    await fleet.do(AgentRegister("near", "specialist", cwd=str(repository)))
    monkeypatch.setattr(fleet.engine.files, "run", hangs)
    begun = trio.current_time()
    states = {state.agent_id: state for state in await listed(fleet)}
    assert trio.current_time() - begun < 0.2
    assert states["near"].branch == "main"
    assert states["far-7"].branch is None


async def test_nobody_looks_here_for_the_directory_of_an_agent_elsewhere(
    fleet: Fleet, repository: Path
) -> None:
    await fleet.do(AgentRegister("near", "specialist", cwd=str(repository)))
    await fleet.do(AgentRegister("far", "specialist", cwd=str(repository)))
    fleet.sql("UPDATE agents SET machine = 'other' WHERE id = 'far'")
    states = {state.agent_id: state for state in await listed(fleet)}
    own = fleet.engine.machine or None
    assert (states["near"].branch, states["near"].machine) == ("main", own)
    assert (states["far"].branch, states["far"].machine) == (None, "other")


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.sqlite_only("counts what SQLite does")
async def test_it_costs_the_same_in_a_long_log(tmp_path: Path) -> None:
    taken = []
    async with opened(tmp_path) as fleet:
        mission = await fleet.mission()
        await fleet.agents(mission, "spec-1", "spec-2")
        await fleet.do(SortieStart((await fleet.sorties(mission))[0].id, "spec-1"))
        for number in (2_000, 6_000):
            data = json.dumps({"command": "make"})
            fleet.sql(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :most)"
                " INSERT INTO events (type, stream, timestamp, mission_id, agent_id, activity,"
                " data_json) SELECT 'command_finished', 'mission:' || :mission,"
                " '2026-01-05T09:00:00.000Z', :mission, 'spec-1', 1, :data FROM n",
                most=number,
                mission=mission.id,
                data=data,
            )
            taken.append(await _steps(fleet))
    assert taken[1] <= taken[0] * 1.1, taken


async def _steps(fleet: Fleet) -> int:
    """Return what SQLite does for one list."""
    steps = StatementSteps()

    def rule(tx, ctx):  # type: ignore[no-untyped-def]
        return agent_states(tx, ctx, AttentionList())[0]

    for connection in apsw.connections():
        steps.watch(connection)
    await fleet.engine.read(rule)
    return steps.taken
