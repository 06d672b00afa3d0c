"""The tools, through the package's own client: what they do, and what they say."""

import os
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import trio

from fleetctl.launch.commands import starters
from fleetctl.mcp_server.server import INSTRUCTIONS, listing
from fleetctl.mcp_server.tools import TOOLS
from fleetd.domain.attention import running
from fleetd.domain.liveness.needs import Need, set_need
from fleetd.engine.projects import Projects
from fleetd.harness.report import RunningItem
from fleetd.protocol.requests.agent import AgentGet, AgentList, AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionCreate,
    MissionList,
    MissionStart,
)
from fleetd.protocol.requests.note import NoteList
from fleetd.protocol.requests.sortie import SortieList
from tests.mcp.conftest import Start
from tests.support.fleet import Fleet
from tests.support.processes import ids

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


async def test_a_planned_sortie_waits_for_the_one_that_it_names(agent: Start) -> None:
    async with agent() as alice:
        [form] = ids("srt", await alice.does("plan", goal="Login", sorties=[{"title": "Form"}]))
        planned = await alice.does("plan", sorties=[{"title": "Tests", "after": [form]}])
        [tests] = set(ids("srt", planned)) - {form}
        assert f"{tests} pending: Tests (waits for {form})" in planned
        await alice.does("sortie", sortie_id=form, state="start")
        done = await alice.does("sortie", sortie_id=form, state="complete")
        assert f"Next: {tests} pending: Tests" in done
        assert "waits for" not in done


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_works_on_a_mission_from_its_goal_to_its_end(
    agent: Start, connect, mode
) -> None:
    async with agent(mode=mode) as alice:
        begun = await alice.does(
            "plan",
            goal="Add login",
            sorties=[
                {"title": "Form", "files": ["src/form.py"]},
                {"title": "Tests", "description": "Of the form"},
            ],
        )
        [mission] = connect().call(MissionList()).missions
        assert (mission.title, mission.status) == ("Add login", "in_progress")
        assert mission.project_dir == os.getcwd()
        form, tests = ids("srt", begun)
        started = await alice.does("sortie", sortie_id=form, state="start")
        assert f"{form} in_progress 0%: Form (you) [src/form.py]" in started
        told = await alice.does(
            "sortie", sortie_id=form, state="progress", percent=60, text="Drawn"
        )
        assert f"{form} in_progress 60%: Form (you) - Drawn" in told
        blocked = await alice.does("sortie", sortie_id=form, state="block", text="No design")
        assert f"{form} blocked: Form (you) - No design" in blocked
        await alice.does("sortie", sortie_id=form, state="unblock")
        done = await alice.does("sortie", sortie_id=form, state="complete", text="Works")
        assert "Mission 50% (1/2 sorties)." in done
        assert f"Next: {tests} pending: Tests - Of the form" in done
        shown = await alice.does("mission")
        assert shown.startswith("You are claude-")
        assert "Goal: Add login" in shown
        assert f"{form} completed: Form (you)" in shown
        open_yet = await alice.fails("finish", outcome="complete")
        assert tests in open_yet or "open" in open_yet
        await alice.does("plan", sorties=[{"title": "Docs"}])
        failed = await alice.does("sortie", sortie_id=tests, state="fail", text="No runner")
        assert "failed" in failed
        *_, docs = ids("srt", await alice.does("mission"))
        last = await alice.does("sortie", sortie_id=docs, state="complete")
        assert "No sortie is open" in last
        assert f"{mission.id} completed" in await alice.does("finish", outcome="complete")
        assert await alice.fails("mission") == (
            "You have no mission. Start one with plan and a goal, or join one with sortie start."
        )
    states = [each.status for each in connect().call(SortieList(mission.id)).sorties]
    assert states == ["completed", "failed", "completed"]


async def test_a_mission_can_be_given_up_with_a_reason(near: Start, fleet: Fleet) -> None:
    async with near() as alice:
        for outcome, status in (("fail", "failed"), ("cancel", "cancelled")):
            await alice.does("plan", goal=f"To {outcome}")
            assert "say why" in await alice.fails("finish", outcome=outcome)
            assert status in await alice.does("finish", outcome=outcome, reason="No time")


async def test_two_missions_at_a_time_are_refused_with_what_to_do(near: Start) -> None:
    async with near() as alice:
        await alice.does("plan", goal="Add login")
        assert "Goal: Add login" in await alice.does("plan", goal="Add login")
        told = await alice.fails("plan", goal="Add logout")
        assert "You already have a mission: msn-" in told
        assert "finish first" in told


async def test_an_agent_joins_what_others_began(near: Start) -> None:
    async with near("alice") as alice, near("bob") as bob:
        begun = await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        [form] = ids("srt", begun)
        assert "Goal: alice: “Add login”" in await bob.does("mission")
        await bob.does("sortie", sortie_id=form, state="start")
        told = await alice.fails("sortie", sortie_id=form, state="complete")
        assert "Leave it to bob, or ask bob with send." in told
        assert "fleetctl" not in told
        assert f"{form} in_progress 0%: Form (bob)" in await alice.does("mission")
        here = await alice.does("agents")
        assert "alice (you): dispatch, claude" in here
        assert "bob: specialist, claude" in here


async def test_an_agent_is_told_what_runs_for_it_and_who_needs_a_user(
    near: Start, fleet: Fleet
) -> None:
    async with near("alice") as alice:
        await alice.does("plan", goal="Add login")
        nobody = "Nothing is known to run for you.\nNo agent needs a user."
        assert await alice.does("attention") == nobody
        told = [
            RunningItem("b1", "shell", "npm run serve\x1b[2J", "/tmp/b1.output"),
            RunningItem("a1", "subagent", "FORGED: “explore”"),
        ]
        await fleet.engine.write(running.see, "alice", told, fleet.clock.now)
        await fleet.do(AgentRegister("bob", "specialist", cwd=str(fleet.project)))
        question = Need("question", "FORGED: which port?")
        await fleet.engine.write(set_need, "bob", question, fleet.clock.now)
        first, *runs, title, need = (await alice.does("attention")).splitlines()
        assert (first, title) == ("Running for you:", "Need a user:")
        assert runs[0].startswith("subagent a1: “FORGED: ")
        assert runs[1].startswith("shell b1: “npm run serve[2J” since ")
        assert runs[1].endswith(", output in /tmp/b1.output")
        assert need.startswith("bob: question since ")
        assert need.endswith(f" in {fleet.project} - “FORGED: which port?”")


async def test_an_agent_asks_for_a_handoff_and_its_user_decides(near: Start, fleet: Fleet) -> None:
    async with near("alice") as alice:
        refused = await alice.fails("handoff", to="codex")
        assert "works in no mission" in refused
        await alice.does("plan", goal="Add login")
        told = await alice.does("handoff", to="codex")
        assert "They confirm with: fleetctl handoff alice --to codex." in told
        assert await alice.does("handoff", to="codex") == told
        asks = "asks to be handed over to codex: fleetctl handoff alice --to codex"
        assert asks in await alice.does("attention")
        assert 'got "emacs"' in await alice.fails("handoff", to="emacs")
    (row,) = fleet.sql("SELECT state, successor_id FROM handoffs")
    assert row == {"state": "asked", "successor_id": None}


def test_every_agent_cli_that_can_begin_a_session_can_be_asked_for() -> None:
    known = TOOLS["handoff"].arguments.__annotations__["to"]
    assert {*get_args(known)} == {*starters()}


async def test_an_agent_is_told_which_files_others_changed(near: Start, fleet: Fleet) -> None:
    async with near("alice") as alice, near("bob"):
        await alice.does("plan", goal="Add login")
        none = "No two agents changed the same file within the last hour."
        assert await alice.does("conflicts") == none
        for agent in ("bob", "carol"):
            await fleet.do(AgentRegister(agent, "specialist", cwd=str(fleet.project)))
        changed = {"alice": ("a\x1b[2J.py",), "bob": ("a\x1b[2J.py", "b.py"), "carol": ("b.py",)}
        for agent, names in changed.items():
            for name in names:
                file = {"file": str(fleet.project / name)}
                await fleet.do(EventAppend("file_modified", agent_id=agent, data=file))
        first, second = (await alice.does("conflicts")).splitlines()
        own = rf"a\\x1b\[2J\.py: alice \(you\) at {TIME}, bob at {TIME}$"
        assert re.search(own, first), first
        assert re.search(rf"b\.py: bob at {TIME}, carol at {TIME}$", second), second


async def test_a_file_that_another_holds_says_who_until_when_and_what_to_do(near: Start) -> None:
    async with near("alice") as alice, near("bob") as bob:
        held = await alice.does("lock", file="src/a.py", purpose="rename", lease_s=60)
        path = os.path.join(os.getcwd(), "src/a.py")
        assert held.startswith("You hold src/a.py until ")
        assert "fencing token" in held
        told = await bob.fails("lock", file=path)
        assert re.search(r"is held by alice \(“rename”\) until \d\d:\d\d:\d\dZ \(.+\)", told), told
        assert "lock with wait_s" in told
        assert "ask alice with send" in told
        assert "held by alice (“rename”)" in await bob.does("locks", file="src/a.py")
        assert "held by you" in await alice.does("locks")
        assert await bob.does("locks", file="src/b.py") == "Nobody holds src/b.py."
        assert "You hold" in await alice.does("lock", file="src/a.py")  # renews
        assert await bob.does("unlock", file="src/a.py") == "You held no lock on src/a.py."
        assert await alice.does("unlock", file="src/a.py") == f"Released: {path}."
        assert "You hold" in await bob.does("lock", file="src/a.py", wait_s=1)
        await bob.does("lock", file="src/b.py")
        released = await bob.does("unlock")
        assert "src/a.py" in released
        assert "src/b.py" in released
        assert await bob.does("unlock") == "You held no lock."


async def test_a_lock_of_another_repository_is_not_taken_for_one_of_this(
    near: Start, fleet: Fleet, home: Path
) -> None:
    other = home / "home" / "other"
    for directory in (other, Path()):
        (directory / ".git").mkdir(parents=True)
    await fleet.do(LockAcquire("carol", "src/form.py", cwd=str(other)))
    async with near("alice") as alice:
        assert await alice.does("locks") == "Nobody holds a lock here."
        assert await alice.does("locks", file="src/form.py") == "Nobody holds src/form.py."
        assert (await alice.does("locks", file=f"{other}/src/form.py")).startswith(
            "~/other/src/form.py: held by carol"
        )
        assert "held by carol" in await alice.fails("lock", file="~/other/src/form.py")
        await alice.does("lock", file="src/form.py")
        assert (await alice.does("locks")).startswith("src/form.py: held by you")
        # What it locked in another directory is another file, whatever it was called there.
        await fleet.do(LockAcquire("alice", "src/b.py", cwd=str(other)))
        assert await alice.does("unlock", file="src/b.py") == "You held no lock on src/b.py."
        released = (await alice.does("unlock")).removeprefix("Released: ").rstrip(".").split(", ")
        assert sorted(released) == ["src/form.py", "~/other/src/b.py"]


async def test_below_its_repositorys_root_an_agent_reads_where_paths_start(
    near: Start, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(os.getcwd())
    (root / ".git").mkdir()
    (root / "src").mkdir()
    monkeypatch.chdir(root / "src")
    async with near("alice") as alice:
        assert "You hold form.py" in await alice.does("lock", file="form.py")
        assert (await alice.does("locks")).startswith(
            f"Paths are from {root}.\nsrc/form.py: held by you"
        )


async def test_directories_and_patterns_are_locked_shared_and_given_back(near: Start) -> None:
    async with near("alice") as alice, near("bob") as bob:
        assert (await alice.does("lock", file="src/", shared=True)).startswith("You hold src/ ")
        assert "You hold src/**/*.py" in await bob.does("lock", file="src/**/*.py", shared=True)
        said = await bob.does("locks", file="src/a/b.py")
        assert "src/: shared by alice" in said
        assert "src/**/*.py: shared by you" in said
        assert "src/**/*.py: shared by you" in await bob.does("locks", file="src/**/*.py")
        refused = await bob.fails("lock", file="src/b.md")
        assert refused.startswith("src/b.md overlaps src/, which is held by alice")
        assert (await alice.does("unlock", file="src/")).endswith("src/.")
        assert (await bob.does("unlock", file="src/**/*.py")).endswith("src/**/*.py.")
        assert await bob.does("locks", file="src/a/b.py") == "Nobody holds src/a/b.py."


def _on(fleet: Fleet, machine: str, directory: str) -> None:
    """Let the engine be one of several that share its store, with a clone of one project."""
    fleet.engine.machine = machine
    fleet.engine.projects = Projects(
        {"widget": [os.path.realpath(directory)]}, machine, fleet.engine.files
    )


async def test_machines_that_share_a_store_share_the_locks_and_missions_of_a_project(
    near: Start, fleet: Fleet
) -> None:
    _on(fleet, "b" * 16, "/srv/widget")
    made = await fleet.do(MissionCreate("Add login", project_dir="/srv/widget"))
    await fleet.do(MissionStart(made.id))
    await fleet.do(MissionCreate("Waiting elsewhere", project_dir=os.getcwd()))
    _on(fleet, "a" * 16, os.getcwd())
    async with near("alice") as alice, near("bob") as bob:
        # What is read before anybody is registered is what is then worked on.
        assert made.id in await alice.does("mission")
        await alice.does("lock", file="src/a.py")
        assert (await fleet.do(AgentGet("alice"))).mission_id == made.id
        assert "is held by alice" in await bob.fails("lock", file=f"{os.getcwd()}//src/a.py")
        assert await bob.does("unlock", file="src/a.py") == "You held no lock on src/a.py."
        path = os.path.join(os.getcwd(), "src/a.py")
        assert await alice.does("unlock", file=path) == "Released: src/a.py."
        await fleet.do(MissionCancel(made.id, "Not now"))
    async with near("carol") as carol:
        assert "You have no mission." in await carol.fails("mission")


async def test_a_lock_is_waited_for(near: Start, fleet: Fleet, autojump_clock: object) -> None:
    fleet.clock.follow_trio()
    async with near("alice") as alice, near("bob") as bob:
        await alice.does("lock", file="a.py")
        waited: list[str] = []

        async def wait() -> None:
            waited.append(await bob.does("lock", file="a.py", wait_s=30))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(20)
            assert waited == []
            await alice.does("unlock")
        assert waited[0].startswith("You hold a.py")


async def test_letters_are_sent_read_and_acknowledged(near: Start) -> None:
    async with near("alice") as alice, near("bob") as bob:
        assert await bob.does("inbox") == "No mail."
        sent = await alice.does(
            "send", to=["bob"], subject="Review?", body="Look at a.py", thread_id="t1"
        )
        [letter] = ids("msg", sent)
        mail = await bob.does("inbox")
        assert f"{letter} from alice" in mail
        assert "(thread t1): “Review?”\n> Look at a.py" in mail
        assert letter in await bob.does("inbox")  # read is not done
        acked = await bob.does("ack", message_ids=[letter, "msg-00000000"])
        assert acked.startswith(f"Acknowledged: {letter}.\n")
        assert await bob.does("inbox") == "No mail."
        again = await bob.fails("ack", message_ids=[letter])
        assert "acknowledged" in again
        unknown = await alice.does("send", to=["bob", "nobody"], subject="Hello?")
        assert "nobody is not registered yet" in unknown


async def test_a_note_a_checkpoint_and_the_briefing(near: Start, fleet: Fleet) -> None:
    async with near() as alice:
        assert "You have no mission" in await alice.fails("briefing")
        await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        noted = await alice.does(
            "note", last_action="Drew the form", next_steps=["Check it"], blockers=["No design"]
        )
        assert noted.splitlines() == [
            "Noted for alice.",
            "Last action: Drew the form",
            "Next: Check it",
            "Blocker: No design",
        ]
        await alice.does("note", next_steps=["Test it"])
        saved = await alice.does("checkpoint", reason="Before the refactoring")
        assert re.match(r"Checkpoint chk-[0-9a-f]{8} of msn-", saved)
        told = await alice.does("briefing")
        for words in ("Add login", "Drew the form", "Test it", "No design"):
            assert words in told
        assert "Check it" not in told
    note = (await fleet.do(AgentGet("alice"))).note
    assert note is not None
    assert note.next_steps == ["Test it"]


async def test_a_note_that_lasts_is_for_all_agents_and_its_authors_to_withdraw(
    near: Start, fleet: Fleet
) -> None:
    async with near() as alice, near("bob") as bob:
        await alice.does("plan", goal="Add login", sorties=[{"title": "Form"}])
        told = await alice.does(
            "note", kind="ruled-out", text="bcrypt", because="It cuts", path="src/a.py"
        )
        found = re.fullmatch(r"Noted (nte-\w+) in msn-\w+ for all its agents: bcrypt", told)
        assert found is not None
        assert "“bcrypt”, because “It cuts”" in await alice.does("briefing")
        assert "- Ruled out by alice: “bcrypt”" in await bob.does("briefing")
        empty = await alice.fails("note", kind="finding", text=" ")
        assert "text is empty; it takes 1 to 2,000 characters" in empty
        refused = await bob.fails("note", withdraw=found[1], because="I like it")
        assert "bob cannot withdraw it" in refused
        gone = await alice.does("note", withdraw=found[1], because="It does not", last_action="x")
        assert gone.splitlines() == [
            f"Withdrawn: {found[1]}, bcrypt",
            "Noted for alice.",
            "Last action: x",
        ]
        assert "bcrypt" not in await bob.does("briefing")
    [note] = (await fleet.do(NoteList(withdrawn=True))).notes
    assert (note.withdrawn_by, note.withdrawn_reason) == ("alice", "It does not")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("sortie", {"state": "start"}, "sortie_id is missing"),
    ("sortie", {"sortie_id": "x y", "state": "start"}, "expected an id such as"),
    (
        "sortie",
        {"sortie_id": "srt-00000000", "state": "begin"},
        'state: expected one of block, complete, fail, progress, start, unblock, got "begin".',
    ),
    ("finish", {"outcome": "boom"}, 'expected one of cancel, complete, fail, got "boom".'),
    ("sortie", {"sortie_id": "srt-00000000", "state": "start"}, "srt-00000000"),
    ("sortie", {"sortie_id": "srt-00000000", "state": "block"}, "text is missing"),
    ("sortie", {"sortie_id": "srt-0", "state": "progress", "percent": 101}, "percent: "),
    ("lock", {"file": "a.py", "wait": 3}, 'no argument "wait"'),
    ("lock", {"file": "a.py", "wait_s": 51}, "wait_s: expected an integer of at most 50, got 51"),
    ("lock", {"file": "a\0.py"}, "a path without NUL bytes"),
    ("lock", {"file": 7}, "file: expected a string, got 7"),
    ("plan", {}, "goal and sorties are missing"),
    ("plan", {"goal": "x" * 501}, "goal: expected a string of at most 500 characters"),
    ("plan", {"goal": "x", "sorties": [{"titel": "y"}]}, 'no argument "titel" in sorties'),
    ("plan", {"sorties": ["a"]}, 'sorties[0]: expected an object such as {"title": ...}.'),
    ("note", {}, "The note is empty"),
    (
        "note",
        {"kind": "guess", "text": "x"},
        'kind: expected one of constraint, decision, finding, ruled-out, got "guess".',
    ),
    ("note", {"text": "x"}, "kind is missing"),
    ("note", {"kind": "finding"}, "text is missing"),
    ("note", {"kind": "finding", "text": "x" * 2_001}, "a string of at most 2000 characters"),
    ("note", {"withdraw": "nte-00000000"}, "because is missing"),
    ("note", {"withdraw": "nte-00000000", "because": "x"}, "nte-00000000"),
    ("note", {"kind": "finding", "text": "x"}, "You have no mission"),
    ("send", {"to": [], "subject": "x"}, "to: expected an array with at least one item"),
    ("ack", {"message_ids": ["msg-00000000"]}, "msg-00000000"),
    ("mission", {"mission_id": "msn-00000000"}, "msn-00000000"),
    ("checkpoint", {}, "You have no mission"),
]


async def test_what_is_wrong_is_said_to_the_agent_and_the_server_lives(near: Start) -> None:
    async with near() as alice:
        for tool, arguments, told in WRONG:
            assert told in await alice.fails(tool, **arguments)
        assert "alice (you)" in await alice.does("agents")


async def test_nulls_are_what_was_left_out(near: Start) -> None:
    async with near() as alice:
        assert "You hold a.py" in await alice.does("lock", file="a.py", lease_s=None, purpose=None)


async def test_long_lists_are_cut_and_say_so(near: Start) -> None:
    async with near() as alice:
        sorties = [{"title": f"{n} {'x' * 300}"} for n in range(150)]
        told = await alice.does("plan", goal="Much", sorties=sorties)
        assert len(told) < 12_500
        assert re.search(r"… \d+ more", told)


async def test_tools_read_only_say_so_and_register_nobody(near: Start, fleet: Fleet) -> None:
    async with near() as alice:
        listed = {tool.name: tool for tool in (await alice.client.list_tools()).tools}
        assert listed.keys() == TOOLS.keys()
        for name, tool in TOOLS.items():
            hints = listed[name].annotations
            assert hints is not None
            assert hints.read_only_hint is tool.reads
            if tool.reads:
                await alice.answer(name)
        assert (await fleet.do(AgentList())).agents == []


def test_what_the_tools_cost_every_agent_stays_small() -> None:
    assert len(listing()) < 6_300
    assert len(INSTRUCTIONS) < 400
    for tool in TOOLS.values():
        assert len(tool.description) < 100
