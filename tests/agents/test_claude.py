"""Claude Code, the real one: compacted in the middle of its work, it goes on where it was."""

import itertools
import json
import shlex
import sys

from tests.agents.desk import Desk
from tests.agents.machines import Claude
from tests.agents.project import PROMPT, SHOUT, SHOUTED
from tests.agents.script import Asked, Call, Reply, calls, says
from tests.agents.wording import briefings, changed, running, steps
from tests.support.processes import fleetctl


def bash(command: str) -> Call:
    return Call("Bash", {"command": command, "description": "Run it"})


def task(subject: str) -> Call:
    return Call("TaskCreate", {"subject": subject, "description": subject, "activeForm": subject})


def becomes(number: int, status: str) -> Call:
    return Call("TaskUpdate", {"taskId": str(number), "status": status})


def todos(*items: tuple[str, str]) -> Call:
    entries = [{"content": text, "status": status, "activeForm": text} for text, status in items]
    return Call("TodoWrite", {"todos": entries})


def edits(desk: Desk[Claude], old: str, new: str, *, full: bool = False) -> list[Reply]:
    """Return the replies that read a file and change it; the window is full after that."""
    file = str(desk.project / "hello.py")
    change = {"file_path": file, "old_string": old, "new_string": new}
    return [calls(Call("Read", {"file_path": file})), calls(Call("Edit", change), full=full)]


def test_the_agent_is_where_its_shell_went_and_its_mission_stays(claude: Desk[Claude]) -> None:
    (claude.project / "sub").mkdir()
    claude.script.plays([calls(bash("cd sub")), calls(bash("pwd")), says("There.")])

    assert claude.cli.prompt(PROMPT).status == 0

    [agent] = claude.memory.agents()
    assert agent.cwd == str(claude.project / "sub"), claude.memory.log()
    assert claude.memory.mission().project_dir == str(claude.project)
    assert agent.mission_id == claude.memory.mission().id


def test_work_goes_on_after_compactions_in_the_middle_of_a_turn(claude: Desk[Claude]) -> None:
    claude.script.plays(
        [
            calls(task("Look at the greeting"), task("Change the greeting"), task("Try it out")),
            calls(becomes(1, "in_progress"), bash(SHOUT)),
            calls(becomes(1, "completed")),
            calls(becomes(2, "in_progress"), bash("false")),
            *edits(claude, "hello", "hello, world", full=True),
            calls(becomes(2, "completed")),
            calls(becomes(3, "in_progress"), full=True),
            calls(bash("python3 hello.py")),
            calls(becomes(3, "completed")),
            says("It greets the world."),
        ]
    )

    run = claude.cli.prompt(PROMPT)

    assert run.status == 0, run.err
    first, second = claude.script.after_compactions()
    before = [asked.text for asked in claude.script.before_compaction()]
    assert SHOUTED in before[-1]
    assert not any(map(briefings, before))
    assert SHOUTED not in first.text
    assert briefings(first.text) == briefings(second.text) == 1
    assert "Change the greeting" in steps(first.text)
    assert "Try it out" in steps(second.text)
    for asked in (first, second):
        assert changed(asked.text) == ["hello.py"]
        assert PROMPT in asked.text

    memory = claude.memory
    mission = memory.mission()
    assert (mission.title, mission.project_dir) == (PROMPT, str(claude.project))
    assert mission.status == "completed"
    assert memory.plan() == [
        ("Look at the greeting", "completed"),
        ("Change the greeting", "completed"),
        ("Try it out", "completed"),
    ]
    assert memory.told("prompt_submitted", "prompt") == [PROMPT]
    assert memory.told("file_modified", "file") == [str(claude.project / "hello.py")]
    commands = [(SHOUT, "PASS"), ("false", "FAIL"), ("python3 hello.py", "PASS")]
    assert memory.commands() == commands
    assert memory.told("tool_failed", "name") == ["Bash"]
    assert memory.compactions() == 2
    assert [each.state for each in memory.recoveries()] == ["resumed", "resumed"]


def test_the_todo_list_of_older_versions_is_the_plan_as_well(claude: Desk[Claude]) -> None:
    claude.script.plays(
        [
            calls(todos(("Look at it", "in_progress"), ("Change it", "pending"))),
            calls(bash(SHOUT)),
            calls(todos(("Look at it", "completed"), ("Change it", "in_progress")), full=True),
            says("More of it tomorrow."),
        ]
    )

    run = claude.cli.prompt(PROMPT, CLAUDE_CODE_ENABLE_TASKS="0")

    assert run.status == 0, run.err
    (after,) = claude.script.after_compactions()
    assert briefings(after.text) == 1
    assert "Change it" in steps(after.text)
    titles = [title for title, _ in claude.memory.plan()]
    assert titles == ["Look at it", "Change it"]
    assert claude.memory.mission().status == "cancelled"


def test_a_user_who_compacts_gets_a_briefing_and_one_who_clears_gets_none(
    claude: Desk[Claude],
) -> None:
    claude.script.plays([calls(task("Look at it")), says("One."), says("Two."), says("Three.")])

    run = claude.cli.converse(PROMPT, "/compact", "Go on", "/clear", "Something else")

    assert run.status == 0, run.err
    assert claude.script.kinds() == ["turn", "turn", "compaction", "turn", "turn"]
    assert [briefings(asked.text) for asked in claude.script.asked_in("turn")] == [0, 0, 1, 0]
    (after,) = claude.script.after_compactions()
    assert "Look at it" in steps(after.text)
    assert claude.memory.told("prompt_submitted", "prompt") == [PROMPT, "Go on", "Something else"]
    assert [each.title for each in claude.memory.missions()] == ["Something else", PROMPT]


def test_a_session_that_goes_on_in_another_process_is_briefed_once(claude: Desk[Claude]) -> None:
    script = claude.script
    script.plays([calls(task("Look at it")), calls(becomes(1, "in_progress"), full=True)])
    script.plays([says("That was the first part.", full=True)])
    assert claude.cli.prompt(PROMPT).status == 0
    script.plays([calls(bash(SHOUT)), says("Done.")])

    assert claude.cli.go_on("Go on").status == 0

    assert script.kinds() == ["turn", "turn", "compaction", "turn", "compaction", "turn", "turn"]
    assert [briefings(asked.text) for asked in script.asked_in("turn")] == [0, 0, 1, 1, 1]
    assert claude.memory.mission().title == PROMPT
    assert claude.memory.compactions() == 2


def test_a_session_that_was_briefed_is_not_briefed_again_when_it_is_continued(
    claude: Desk[Claude],
) -> None:
    script = claude.script
    script.plays([calls(bash(SHOUT)), calls(bash("true"), full=True), says("One.")])
    assert claude.cli.prompt(PROMPT).status == 0
    script.plays([says("Two.")])

    assert claude.cli.go_on("Go on").status == 0

    assert script.kinds() == ["turn", "turn", "compaction", "turn", "turn"]
    assert [briefings(asked.text) for asked in script.asked_in("turn")] == [0, 0, 1, 1]


def test_nobody_is_briefed_without_a_compaction_and_the_doctor_is_content(
    claude: Desk[Claude],
) -> None:
    claude.script.plays([calls(task("Look at it")), calls(bash("true")), says("Done.")])

    assert claude.cli.prompt(PROMPT).status == 0

    assert not any(briefings(asked.text) for asked in claude.script.asked)
    assert claude.memory.recoveries() == []
    doctor = fleetctl("hooks", "doctor", "--live")
    assert doctor.status == 0, doctor.out
    assert "no unknown events or fields in the last week" in doctor.out
    assert "2.1.330, as in its last events" in doctor.out


def test_what_runs_beside_the_turn_is_named_after_a_compaction_until_it_ends(
    claude: Desk[Claude],
) -> None:
    waits = "until [ -e done ]; do sleep 0.1; done"
    lists = f"{shlex.quote(sys.executable)} -m fleetctl call attention.list"
    # The list shows this command, too.
    ends = f"touch done; while {lists} | grep -q '[s]ubagent'; do sleep 0.1; done"
    shell = Call("Bash", {"command": waits, "description": "Watch it", "run_in_background": True})
    helpers = [
        Call("Agent", {"description": told, "prompt": f"{told}, please"})
        for told in ("Read the notes", "Count the words")
    ]

    def aside(asked: Asked) -> Reply | None:
        """Answer subagents; then end them, and say nothing new to what they tell."""
        if PROMPT not in asked.text:
            ended = "tool_result" in json.dumps(asked.body["messages"][-1])
            return says("Nothing found.") if ended else calls(bash(waits))
        if claude.script.replies:
            return None
        return says("I see.") if (claude.project / "done").exists() else calls(bash(ends))

    outputs: set[str | None] = set()

    def listing(asked: Asked) -> Reply | None:
        outputs.update(each.output for each in claude.memory.running() if each.kind == "subagent")
        return aside(asked)

    claude.script.aside = listing
    claude.script.plays([calls(*helpers, shell), says("They run.")])

    run = claude.cli.converse(PROMPT, "/compact", "Go on", "/compact", "And now?")

    assert run.status == 0, run.err
    own = [asked for asked in claude.script.asked if asked.kind != "side" and PROMPT in asked.text]
    first, second = (
        now for before, now in itertools.pairwise(own) if before.kind == "compaction" != now.kind
    )
    named = running(first.text)
    assert len(named) == 3, named
    for told in ("subagent", "Read the notes", "Count the words", "shell", "Watch it"):
        assert any(told in line and "last sign" in line for line in named), named
    assert briefings(second.text) == 1
    assert running(second.text) == []
    assert len([each for each in outputs if each and each.endswith(".output")]) == 2
    assert claude.memory.running() == []
