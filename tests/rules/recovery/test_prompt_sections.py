"""What each section of the recovery prompt tells, when it is there; a thing stands once."""

import itertools
import json
import os
import re
from typing import Any

import pytest

from fleetd.domain.core.context import Caller
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.agent import AgentRegister
from fleetd.protocol.requests.checkpoint import ErrorReport
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.hook import HookDeliver
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.note import NoteAdd
from fleetd.protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from fleetd.protocol.requests.snapshot import SnapshotRecord
from fleetd.protocol.requests.sortie import (
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieProgress,
    SortieStart,
)
from tests.support.fleet import DAY, HOUR, MINUTE, SECOND, Fleet
from tests.support.git import git

ME = "spec-1"
CONTRACTED = ["Next Steps", "Current Blockers", "Files Modified", "Time Context"]
BEFORE = "What Your User Said Before"
# Ids of what the reader can ask nothing with. Missions and sorties are named in commands.
USELESS = re.compile(r"\b(?:chk|cp|lck|msg|rcv|evt|nte|run|snp)[-_][0-9a-f]{6,}|token|window press")
_ids = itertools.count()


@pytest.fixture
async def mission(fleet: Fleet) -> Mission:
    """Return a mission of the reader and another agent, in which nothing was done."""
    made = await fleet.mission(0)
    await fleet.agents(made, "dispatch-1", ME, "spec-2")
    return made


async def briefing(
    fleet: Fleet, mission: Mission, agent: str | None = ME, max_chars: int | None = None
) -> str:
    return (await fleet.do(RecoveryContextGet(mission.id, agent, max_chars=max_chars))).prompt


def headings(prompt: str) -> list[str]:
    return re.findall(r"^### (.*)$", prompt, re.MULTILINE)


def section(prompt: str, heading: str) -> list[str]:
    """Return the lines below a heading, none where it is not there."""
    return prompt.partition(f"### {heading}\n")[2].partition("\n\n")[0].splitlines()


async def told(fleet: Fleet, mission: Mission, kind: str, agent: str = ME, **data: Any) -> None:
    await fleet.do(EventAppend(kind, mission.id, agent, data))


async def said(fleet: Fleet, mission: Mission, text: str, agent: str = ME) -> None:
    await told(fleet, mission, "prompt_submitted", agent, prompt=text)


async def answered(fleet: Fleet, mission: Mission, text: str, agent: str = ME) -> None:
    await told(fleet, mission, "agent_answered", agent, message=text)


async def ran(
    fleet: Fleet, mission: Mission, command: str, result: str, error: str = "", agent: str = ME
) -> None:
    data = {"command": command, "result": result, "error": error}
    await told(fleet, mission, "command_finished", agent, **data)


# When a section is there


async def _task(fleet: Fleet, mission: Mission) -> None:
    await said(fleet, mission, "Add a login")


async def _before(fleet: Fleet, mission: Mission) -> None:
    await _task(fleet, mission)
    await said(fleet, mission, "Go on")


async def _note(fleet: Fleet, mission: Mission) -> None:
    await fleet.do(NoteAdd("decision", "argon2", mission_id=mission.id))


async def _sortie(fleet: Fleet, mission: Mission) -> None:
    made = await fleet.do(SortieCreate(mission.id, "The form", files=["src/form.py"]))
    await fleet.do(SortieStart(made.id, ME))


async def _failure(fleet: Fleet, mission: Mission) -> None:
    await ran(fleet, mission, "make test", "FAIL")


async def _lock(fleet: Fleet, mission: Mission) -> None:
    await fleet.lock(mission, "src/form.py", ME)


async def _others_lock(fleet: Fleet, mission: Mission) -> None:
    await fleet.lock(mission, "src/page.py", "spec-2")


async def _mail(fleet: Fleet, mission: Mission) -> None:
    await fleet.write(mission, [ME])


async def _pass(fleet: Fleet, mission: Mission) -> None:
    await ran(fleet, mission, "make lint", "PASS")


async def _done(fleet: Fleet, mission: Mission) -> None:
    await _sortie(fleet, mission)
    [made] = await fleet.sorties(mission)
    await fleet.do(SortieComplete(made.id))


async def test_with_nothing_to_say_only_the_contracted_part_and_the_origin_are_there(
    fleet: Fleet, mission: Mission
) -> None:
    for reader in (ME, "dispatch-1", None):
        prompt = await briefing(fleet, mission, reader)
        assert headings(prompt) == CONTRACTED
        below = prompt.partition("### Time Context\n")[2].split("\n\n")
        assert len(below) == 3
        assert below[1].startswith("fleetd recorded ")


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        (_task, ["Task"]),
        (_before, ["Task", BEFORE]),
        (_note, ["Notes"]),
        (_sortie, ["Now"]),
        (_failure, ["Now"]),
        (_lock, ["Now"]),
        (_others_lock, ["Others"]),
        (_mail, ["Others"]),
        (_pass, ["Done"]),
        (_done, ["Done"]),
    ],
)
async def test_a_section_is_there_when_it_has_something_to_say(
    fleet: Fleet, mission: Mission, happens: Any, found: list[str]
) -> None:
    await happens(fleet, mission)
    assert headings(await briefing(fleet, mission)) == [*CONTRACTED, *found]


async def test_a_session_of_which_nothing_is_known_gets_nothing(fleet: Fleet) -> None:
    assert await hook(fleet, "SessionStart", source="startup") == ""
    assert await hook(fleet, "SessionStart", source="compact") == ""


async def test_what_an_everyday_session_is_told_is_short(fleet: Fleet, mission: Mission) -> None:
    for happens in (_before, _note, _done, _failure, _lock, _others_lock, _mail, _pass):
        await happens(fleet, mission)
    await answered(fleet, mission, "Shall the form be tested?\n" * 10)
    await said(fleet, mission, "Yes, with a browser.")
    prompt = await briefing(fleet, mission)
    assert headings(prompt) == [*CONTRACTED, "Task", BEFORE, "Notes", "Now", "Others", "Done"]
    assert len(prompt) < 3_000


# Who speaks


@pytest.mark.parametrize("reader", [ME, "dispatch-1", None])
async def test_one_line_says_who_speaks(fleet: Fleet, mission: Mission, reader: str | None) -> None:
    await _task(fleet, mission)
    prompt = await briefing(fleet, mission, reader)
    whose = f"this session (agent {reader}, " if reader else "this work ("
    origin = (
        f"fleetd recorded {whose}mission {mission.id}). It states facts and gives no orders. A"
        " sortie is a step of the plan. `fleetctl context` or the tool `briefing` has more."
    )
    assert prompt.count("fleetd recorded") == 1
    assert f" (just now)\n\n{origin}\n\n### Task\n" in prompt


async def test_who_works_elsewhere_reads_where_the_mission_lies(
    fleet: Fleet, mission: Mission
) -> None:
    elsewhere = fleet.project.parent / "elsewhere"
    elsewhere.mkdir()
    await fleet.do(AgentRegister("spec-3", "specialist", mission_id=mission.id, cwd=str(elsewhere)))
    place = f"mission {mission.id} in {fleet.project}). It states"
    assert place in await briefing(fleet, mission, "spec-3")
    assert str(fleet.project) not in await briefing(fleet, mission)


# The task


async def test_the_newest_instruction_stands_word_for_word(fleet: Fleet, mission: Mission) -> None:
    text = "Use argon2,\n\n  not bcrypt:\n\n- “fast”\n- # cheap\n"
    await said(fleet, mission, text)
    assert section(await briefing(fleet, mission), "Task") == [
        "- Your user, just now:",
        "  > Use argon2,",
        "  > not bcrypt:",
        "  > - “fast”",
        "  > - # cheap",
    ]


async def test_the_answer_before_the_newest_instruction_stands_with_it(
    fleet: Fleet, mission: Mission
) -> None:
    await answered(fleet, mission, "An older one")
    await said(fleet, mission, "Limit the requests")
    await answered(fleet, mission, "Shall I allow 5 per minute?")
    fleet.clock.pass_by(3 * MINUTE)
    await answered(fleet, mission, "Of another agent", "spec-2")
    await said(fleet, mission, "Yes, 5 per minute")
    assert section(await briefing(fleet, mission), "Task") == [
        "- Your user, just now:",
        "  > Yes, 5 per minute",
        "- Your answer before that, 3 minutes ago:",
        "  > Shall I allow 5 per minute?",
    ]
    fleet.clock.pass_by(2 * HOUR)
    await answered(fleet, mission, "It is allowed now.")
    assert section(await briefing(fleet, mission), "Task") == [
        "- Your user, 2 hours ago:",
        "  > Yes, 5 per minute",
        "- Your answer before that, 2 hours ago:",
        "  > Shall I allow 5 per minute?",
        "- Your answer since, just now:",
        "  > It is allowed now.",
    ]
    nobodys = await briefing(fleet, mission, None)
    assert "answer" not in nobodys
    assert "Yes, 5 per minute" in nobodys


async def test_of_a_long_answer_the_end_is_kept(fleet: Fleet, mission: Mission) -> None:
    lines = [f"Line {n} of what I found out" for n in range(100)]
    await answered(fleet, mission, "\n".join([*lines, "Shall I go on?"]))
    await said(fleet, mission, "Yes")
    for budget in (9_500, 4_000, 2_000):
        answer = section(await briefing(fleet, mission, max_chars=budget), "Task")[2:]
        assert answer[:2] == ["- Your answer before that, just now:", "  > …"]
        assert answer[2:-1] == [f"  > {line}" for line in lines[-len(answer[2:-1]) :]]
        assert answer[-1] == "  > Shall I go on?"
        most = min(budget // 8, 1_000)
        assert most - 40 < len("\n".join(answer[1:])) <= most


async def test_instructions_before_have_their_own_heading(fleet: Fleet, mission: Mission) -> None:
    for n in range(7):
        await said(fleet, mission, f"Instruction {n}")
        fleet.clock.pass_by(MINUTE)
    prompt = await briefing(fleet, mission)
    assert section(prompt, "Task") == ["- Your user, 1 minute ago:", "  > Instruction 6"]
    assert section(prompt, BEFORE) == [
        line
        for n in (5, 4, 3, 2)
        for line in (f"- Your user, {7 - n} minutes ago:", f"  > Instruction {n}")
    ]
    assert prompt.count("Instruction 6") == 1


async def test_a_successor_reads_whose_answer_it_was(fleet: Fleet, mission: Mission) -> None:
    await answered(fleet, mission, "Shall I allow 5 per minute?")
    await said(fleet, mission, "Yes, 5 per minute")
    fleet.clock.pass_by(10 * MINUTE)
    checkpoint = await fleet.checkpoint(mission)
    heir = {"agent_id": "spec-3", "take_over_from": ME, "scope": "agent"}
    prompt = (await fleet.restore(checkpoint, **heir)).prompt
    assert section(prompt, "Task") == [
        "- Your user, 10 minutes ago:",
        "  > Yes, 5 per minute",
        f"- {ME}'s answer before that, 10 minutes ago:",
        "  > Shall I allow 5 per minute?",
    ]
    assert section(prompt, "Current Blockers") == ["- None"]
    assert f"- You took over from {ME}" in section(prompt, "Others")


async def test_a_dispatch_reads_its_own_instruction_first_and_whose_the_others_were(
    fleet: Fleet, mission: Mission
) -> None:
    await said(fleet, mission, "Lead them", "dispatch-1")
    await said(fleet, mission, "Write the form")
    prompt = await briefing(fleet, mission, "dispatch-1")
    assert section(prompt, "Task") == ["- Your user, just now:", "  > Lead them"]
    assert section(prompt, BEFORE) == [f"- Your user, just now, to {ME}:", "  > Write the form"]


# Now


async def test_sorties_at_work_are_named_with_their_files(fleet: Fleet, mission: Mission) -> None:
    for title, agent in (("The form", ME), ("The page", ME), ("The tests", "spec-2")):
        place = str(fleet.project / f"src/{title[4:]}.py")
        made = await fleet.do(SortieCreate(mission.id, title, files=[place, "doc.md"]))
        await fleet.do(SortieStart(made.id, agent))
    form, page, _ = await fleet.sorties(mission)
    await fleet.do(SortieBlock(page.id, "no design"))
    await fleet.do(SortieCreate(mission.id, "Later", assigned_to=ME))
    assert section(await briefing(fleet, mission), "Now") == [
        f"- {form.id} (The form): src/form.py, doc.md",
        f"- {page.id} (The page): src/page.py, doc.md",
    ]


@pytest.mark.parametrize("lines", [3, 400])
async def test_the_last_failing_command_is_told_with_the_end_of_its_output(
    fleet: Fleet, mission: Mission, lines: int
) -> None:
    output = [f"tests/test_{n}.py ok" for n in range(lines)]
    await ran(fleet, mission, "make lint", "FAIL", "an older one")
    await ran(fleet, mission, "make test", "FAIL", "\n".join([*output, "2 failed, 7 passed"]))
    fleet.clock.pass_by(12 * MINUTE)
    first, *end = section(await briefing(fleet, mission), "Now")
    assert first == "- make test failed 12 minutes ago; its output ends:"
    assert end[-1] == "  > 2 failed, 7 passed"
    assert (end[0] == "  > …") == (lines == 400)
    assert all(line.startswith("  > ") for line in end)
    assert len("\n".join(end)) <= 800


async def test_a_command_that_passed_since_is_no_failure(fleet: Fleet, mission: Mission) -> None:
    await ran(fleet, mission, "make lint", "FAIL")
    fleet.clock.pass_by(MINUTE)
    await ran(fleet, mission, "make test", "FAIL", "2 failed\nAssertionError")
    await ran(fleet, mission, "make docs", "PASS")
    prompt = await briefing(fleet, mission)
    assert section(prompt, "Now")[0] == "- make test failed just now; its output ends:"
    # It stands once, and those that ended otherwise are done.
    assert section(prompt, "Done") == [
        "- make docs passed just now",
        "- make lint failed 1 minute ago",
    ]
    await ran(fleet, mission, "make test", "PASS")
    assert section(await briefing(fleet, mission), "Now") == ["- make lint failed 1 minute ago"]
    await ran(fleet, mission, "make lint", "PASS")
    prompt = await briefing(fleet, mission)
    assert "### Now" not in prompt
    assert "AssertionError" not in prompt


async def test_what_failed_is_not_told_again_as_a_step(fleet: Fleet, mission: Mission) -> None:
    await _sortie(fleet, mission)
    await ran(fleet, mission, "make test", "FAIL", "first\n2 failed")
    await fleet.do(SnapshotRecord("run-1", agent_id=ME))
    context = (await fleet.do(RecoveryContextGet(mission.id, ME))).recovery_context
    assert context.next_steps[0].startswith("Look into what failed: “make test: ")
    prompt = await briefing(fleet, mission)
    assert section(prompt, "Next Steps") == ["- The form (in progress)"]
    below = prompt.partition("### Next Steps")[2]
    assert below.count("make test") == below.count("2 failed") == 1


async def test_own_locks_are_told_with_the_time_they_have_left(
    fleet: Fleet, mission: Mission
) -> None:
    await fleet.lock(mission, "src/a.py", ME, timeout_ms=HOUR)
    await fleet.lock(mission, "src/b.py", ME, timeout_ms=90 * SECOND, purpose="delete")
    fleet.clock.pass_by(29_001)
    assert set(section(await briefing(fleet, mission), "Now")) == {
        "- You hold src/a.py for 59m 30s more",
        "- You hold src/b.py (“delete”) for 1m 0s more",
    }
    fleet.clock.pass_by(61 * SECOND)
    assert section(await briefing(fleet, mission), "Now") == [
        "- You hold src/a.py for 58m 29s more"
    ]


# Now: what Git says


@pytest.fixture
async def cloned(fleet: Fleet, patience: None) -> Fleet:
    """Make the project a repository with a commit."""
    (fleet.project / "src").mkdir()
    for name in ("src/a.py", "src/b.py", "old.py"):
        (fleet.project / name).write_text("a = 1\n")
    git(fleet.project, "init", "--quiet", "--initial-branch=main")
    git(fleet.project, "add", ".")
    git(fleet.project, "commit", "--quiet", "--message=Begin")
    return fleet


async def tree(fleet: Fleet, mission: Mission) -> str:
    """Return what a briefing says of the working tree, without the commit."""
    [line] = section(await briefing(fleet, mission), "Now")
    begin, _, rest = line.partition("; ")
    commit = git(fleet.project, "log", "-1", "--format=%h by “%an”: “%s”").strip()
    assert begin == f"- Branch “main”, commit {commit}"
    return rest


async def modified(fleet: Fleet, mission: Mission, *names: str) -> None:
    """Change files, and tell of it as a harness does, with whole paths."""
    for name in names:
        file = fleet.project / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("b = 2\n")
        await told(fleet, mission, "file_modified", file=str(file))


async def test_a_clean_tree_has_nothing_uncommitted(cloned: Fleet, mission: Mission) -> None:
    assert await tree(cloned, mission) == "nothing uncommitted"


async def test_uncommitted_files_that_are_named_already_are_not_repeated(
    cloned: Fleet, mission: Mission
) -> None:
    await modified(cloned, mission, "src/a.py", "new dir/inner/c.py", "new dir/d.py", "e f.py")
    prompt = await briefing(cloned, mission)
    assert section(prompt, "Files Modified") == [
        *("- e f.py", "- new dir/d.py", "- new dir/inner/c.py", "- src/a.py")
    ]
    # Of a new directory Git names the directory alone, and a name with a blank in quotes.
    assert await tree(cloned, mission) == "uncommitted: the files above"


async def test_uncommitted_files_that_nobody_named_are_told(
    cloned: Fleet, mission: Mission
) -> None:
    await modified(cloned, mission, "src/a.py")
    (cloned.project / "src/b.py").write_text("c = 3\n")
    (cloned.project / "made").mkdir()
    (cloned.project / "made" / "x.txt").write_text("x")
    git(cloned.project, "mv", "old.py", "new.py")
    assert await tree(cloned, mission) == (
        "uncommitted: the files above, R  old.py -> new.py, M src/b.py, ?? made/"
    )


async def test_files_that_were_committed_meanwhile_are_not_called_uncommitted(
    cloned: Fleet, mission: Mission
) -> None:
    await modified(cloned, mission, "src/a.py", "src/b.py")
    git(cloned.project, "commit", "--quiet", "--message=Half of it", "src/a.py")
    assert await tree(cloned, mission) == "uncommitted: src/b.py"
    git(cloned.project, "commit", "--quiet", "--message=The rest", "src/b.py")
    assert await tree(cloned, mission) == "nothing uncommitted"


async def test_many_uncommitted_files_are_counted(cloned: Fleet, mission: Mission) -> None:
    for n in range(30):
        (cloned.project / f"n{n:02}.py").write_text("x")
    names = ", ".join(f"?? n{n:02}.py" for n in range(20))
    assert await tree(cloned, mission) == f"uncommitted: {names}, 10 more files"


async def test_a_repository_without_a_commit_has_a_branch(fleet: Fleet, patience: None) -> None:
    git(fleet.project, "init", "--quiet", "--initial-branch=main")
    mission = await fleet.mission(0)
    assert section(await briefing(fleet, mission, None), "Now") == [
        "- Branch “main”, no commits yet; nothing uncommitted"
    ]


# Others


async def test_who_holds_a_file_is_told_up_to_five(fleet: Fleet, mission: Mission) -> None:
    for n in range(5):
        fleet.clock.pass_by(SECOND)
        await fleet.lock(mission, f"src/{n}.py", "spec-2", purpose="read" if n == 4 else "edit")
    five = [f"- spec-2 holds src/{n}.py" for n in range(4)] + ["- spec-2 holds src/4.py (“read”)"]
    assert section(await briefing(fleet, mission), "Others") == five
    for n in (5, 6, 7):
        fleet.clock.pass_by(SECOND)
        await fleet.lock(mission, f"src/{n}.py", "spec-2")
    assert section(await briefing(fleet, mission), "Others") == [
        *five,
        "- Others hold 3 more files",
    ]
    assert "Others" not in headings(await briefing(fleet, mission, "spec-2"))


async def test_unread_mail_is_told_with_its_sender_subject_and_first_line(
    fleet: Fleet, mission: Mission
) -> None:
    body = "\n \x1b\n### Please look”\nat the second line\n"
    await fleet.write(mission, [ME], "Review “this”\n", body=body, sender="spec-2")
    fleet.clock.pass_by(DAY)
    await fleet.write(mission, [ME], "s" * 190, body="b" * 1_000)
    await fleet.write(mission, [ME], "No body")
    prompt = await briefing(fleet, mission)
    assert section(prompt, "Others") == [
        '- Mail from spec-2, 1 day ago: “Review "this"”: “### Please look"”',
        f"- Mail from dispatch-1, just now: “{'s' * 159}…”: “{'b' * 159}…”",
        "- Mail from dispatch-1, just now: “No body”",
    ]
    assert "second line" not in prompt


# Done


async def test_what_is_done_is_told_in_one_line_each_the_newest_first(
    fleet: Fleet, mission: Mission
) -> None:
    for title, result in (("The model", None), ("The form", "It has\ntwo fields”")):
        made = await fleet.do(SortieCreate(mission.id, title))
        await fleet.do(SortieStart(made.id, ME))
        await fleet.do(SortieComplete(made.id, result=result))
        fleet.clock.pass_by(MINUTE)
    for n in range(8):
        await ran(fleet, mission, f"make {n}", "PASS" if n % 2 else "")
        fleet.clock.pass_by(MINUTE)
    assert section(await briefing(fleet, mission), "Done") == [
        '- The form: “It has two fields"”',
        "- The model",
        "- make 7 passed 1 minute ago",
        "- make 6 ended 2 minutes ago",
        "- make 5 passed 3 minutes ago",
        "- make 4 ended 4 minutes ago",
        "- make 3 passed 5 minutes ago",
        "- make 2 ended 6 minutes ago",
    ]


async def test_a_specialist_reads_what_it_did_itself_and_others_everything(
    fleet: Fleet, mission: Mission
) -> None:
    for title, agent in (("Mine", ME), ("Theirs", "spec-2")):
        made = await fleet.do(SortieCreate(mission.id, title))
        await fleet.do(SortieStart(made.id, agent))
        await fleet.do(SortieComplete(made.id))
        await ran(fleet, mission, f"make {title}", "PASS", agent=agent)
        fleet.clock.pass_by(MINUTE)
    own = ["- Mine", "- make Mine passed 2 minutes ago"]
    assert section(await briefing(fleet, mission), "Done") == own
    for reader in ("dispatch-1", None):
        assert section(await briefing(fleet, mission, reader), "Done") == [
            "- Theirs",
            "- Mine",
            "- make Theirs of spec-2 passed 1 minute ago",
            f"- make Mine of {ME} passed 2 minutes ago",
        ]


async def test_a_command_of_another_agent_says_whose_and_makes_nothing_good(
    fleet: Fleet, mission: Mission
) -> None:
    await ran(fleet, mission, "make test", "FAIL")
    await ran(fleet, mission, "make test", "PASS", agent="spec-2")
    for reader, whose in ((ME, ""), (None, f" of {ME}")):
        now = section(await briefing(fleet, mission, reader), "Now")
        assert now == [f"- make test{whose} failed just now"]
    assert "### Now" not in await briefing(fleet, mission, "spec-2")
    # A dispatch goes on with its own work, and reads how that of others is.
    prompt = await briefing(fleet, mission, "dispatch-1")
    assert "### Now" not in prompt
    assert f"- make test of {ME} failed just now" in section(prompt, "Done")


# Times, paths, ids


async def test_the_time_context_has_a_time_and_how_long_ago_it_was(
    fleet: Fleet, mission: Mission
) -> None:
    await said(fleet, mission, "Begin")
    at = fleet.clock.now
    for passed, ago in (
        (0, "just now"),
        (12 * MINUTE, "12 minutes ago"),
        (HOUR, "1 hour ago"),
        (3 * DAY, "3 days ago"),
    ):
        fleet.clock.pass_by(passed)
        prompt = await briefing(fleet, mission)
        assert section(prompt, "Time Context")[1] == f"- Last activity: {at} ({ago})"
        # That is the only time that is not told as people say it.
        assert re.findall(r"\d{2}:\d{2}[:.0-9]*", prompt) == ["12:00:00.000"]
        assert f"- Your user, {ago}:" in prompt


async def test_files_are_told_below_the_repository(fleet: Fleet, mission: Mission) -> None:
    await modified(fleet, mission, "src/a.py")
    await told(fleet, mission, "file_modified", file="src/a.py")
    await told(fleet, mission, "file_modified", file="/etc/hosts")
    await told(fleet, mission, "file_modified", file=f"{fleet.project}-two/c.py")
    await fleet.lock(mission, str(fleet.project / "src/a.py"), ME)
    prompt = await briefing(fleet, mission)
    assert section(prompt, "Files Modified") == [
        f"- {fleet.project}-two/c.py",
        "- /etc/hosts",
        "- src/a.py",
    ]
    assert section(prompt, "Now") == ["- You hold src/a.py for 10m 0s more"]
    assert f"{fleet.project}/" not in prompt


async def test_the_last_action_names_a_file_below_the_repository(
    fleet: Fleet, mission: Mission
) -> None:
    await modified(fleet, mission, "src/a.py")
    assert f"**Last Action**: {ME} edited src/a.py\n" in await briefing(fleet, mission)


async def test_no_id_stands_there_that_the_reader_cannot_use(
    fleet: Fleet, mission: Mission
) -> None:
    for happens in (_before, _note, _done, _failure, _lock, _others_lock, _mail, _pass):
        await happens(fleet, mission)
    taken = await fleet.do(SnapshotRecord("run-1", agent_id=ME))
    await fleet.do(ErrorReport(ME, "exception", "OSError", "disk full", mission.id))
    checkpoint = await fleet.checkpoint(mission)
    locks, letters = fleet.sql("SELECT * FROM locks"), fleet.sql("SELECT id FROM messages")
    restored = await fleet.restore(checkpoint, agent_id=ME)
    ids = [taken.snapshot_id, "run-1", checkpoint.id, restored.recovery_id]
    ids += [row["id"] for row in (*locks, *letters, *fleet.sql("SELECT id FROM notes"))]
    prompts = [restored.prompt]
    prompts += [await briefing(fleet, mission, reader) for reader in (ME, "dispatch-1", None)]
    for prompt in prompts:
        assert not [each for each in ids if str(each) in prompt]
        assert not USELESS.search(prompt)


# A hook's briefing


async def hook(fleet: Fleet, event: str, **fields: Any) -> str:
    """Deliver an event as Claude Code tells it, and return the text that the agent reads."""
    payload = {"session_id": "12f459b8-1", "cwd": str(fleet.project), "hook_event_name": event}
    asked = HookDeliver(f"delivery-{next(_ids):08}", "claude", json.dumps(payload | fields))
    reply = (await fleet.do(asked)).stdout
    return json.loads(reply)["hookSpecificOutput"]["additionalContext"] if reply else ""


async def session(fleet: Fleet) -> str:
    """Let a session begin and make a plan; return its agent."""
    await hook(fleet, "SessionStart", source="startup")
    await hook(fleet, "UserPromptSubmit", prompt="Add a login")
    todos = [{"content": "The form", "status": "in_progress", "activeForm": "Writing"}]
    await hook(fleet, "PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})
    return "claude-12f459b8"


def progress(prompt: str) -> str:
    return prompt.partition("**Progress**: ")[2].partition("\n")[0]


async def test_a_hooks_briefing_is_silent_about_sorties_that_nothing_changed(
    fleet: Fleet,
) -> None:
    agent = await session(fleet)
    await fleet.do(LockAcquire(agent, str(fleet.project / "form.py")))
    await hook(fleet, "PreCompact", trigger="auto")
    prompt = await hook(fleet, "SessionStart", source="compact")
    assert progress(prompt) == "0% (0/1 sorties complete)"
    assert "restored" not in prompt


@pytest.mark.parametrize("asked_by_hook", [True, False])
async def test_a_recovery_that_changed_something_says_what_was_restored(
    fleet: Fleet, asked_by_hook: bool
) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, ME)
    await fleet.work(mission, 0, ME)
    checkpoint = await fleet.checkpoint(mission)
    caller = Caller(kind="client", uid=os.getuid(), hook=asked_by_hook)
    asked = RecoveryRestore(checkpoint.id, agent_id=ME, requested_by=ME, scope="agent")
    same = await fleet.engine.ask(asked, caller)
    assert same.changed == []
    count = "0% (0/2 sorties complete)"
    restored = "" if asked_by_hook else ", 1 sorties restored"
    assert progress(same.prompt) == count + restored

    await fleet.do(SortieProgress((await fleet.sorties(mission))[0].id, 90))
    back = await fleet.engine.ask(asked, caller)
    assert [change.what for change in back.changed] == ["sortie"]
    assert progress(back.prompt) == f"{count}, 1 sorties restored"


async def test_whoever_asks_for_a_recovery_always_reads_what_was_restored(fleet: Fleet) -> None:
    agent = await session(fleet)
    await hook(fleet, "PreCompact", trigger="auto")
    for _ in range(2):
        result = await fleet.restore(agent_id=agent, requested_by=agent, scope="agent")
        assert result.changed == []
        assert progress(result.prompt) == "0% (0/1 sorties complete), 1 sorties restored"
