"""OpenCode 1, the real one: its plugin keeps the briefing in each request after a compaction."""

from tests.agents.desk import Desk
from tests.agents.machines import OpenCode
from tests.agents.project import GREETING, PROMPT, SHOUT
from tests.agents.script import Call, Reply, calls, says
from tests.agents.wording import briefings, changed
from tests.support.processes import fleetctl

# The command line puts a prompt of several words into quotation marks.
QUOTED = f'"{PROMPT}"'


def shell(command: str) -> Call:
    return Call("bash", {"command": command, "description": "Run it"})


def edits(file: str, *, full: bool = False) -> list[Reply]:
    """Return the replies that read a file and change it; the window is full after that."""
    change = {"filePath": file, "oldString": "hello", "newString": "hello, world"}
    return [calls(Call("read", {"filePath": file})), calls(Call("edit", change), full=full)]


def test_each_request_after_a_compaction_holds_the_briefing_once(
    opencode: Desk[OpenCode],
) -> None:
    script, file = opencode.script, str(opencode.project / "hello.py")
    script.plays([calls(shell(SHOUT)), *edits(file, full=True)])
    script.plays([calls(shell("true")), calls(shell("false")), says("Tried.")])

    assert opencode.cli.prompt(PROMPT).status == 0

    assert script.kinds().count("compaction") == 1
    turns = script.asked_in("turn")
    told = [briefings(asked.text) for asked in turns]
    assert told == [0, 0, 0, 1, 1, 1], opencode.memory.log()
    for asked in turns[3:]:
        assert changed(asked.text) == ["hello.py"]
        assert PROMPT in asked.text

    memory = opencode.memory
    assert (memory.mission().title, memory.mission().project_dir) == (QUOTED, str(opencode.project))
    assert memory.told("prompt_submitted", "prompt") == [QUOTED]
    assert memory.told("file_modified", "file") == [file]
    assert memory.commands() == [(SHOUT, "PASS"), ("true", "PASS"), ("false", "FAIL")]
    assert memory.compactions() == 1
    assert [each.state for each in memory.recoveries()] == ["resumed"]


def test_a_new_process_of_a_compacted_session_is_briefed_once(opencode: Desk[OpenCode]) -> None:
    script = opencode.script
    script.plays([calls(shell(SHOUT)), calls(shell("true"), full=True), says("One.")])
    assert opencode.cli.prompt(PROMPT).status == 0
    script.plays([calls(shell("true")), says("Two.")])

    assert opencode.cli.go_on("Go on").status == 0

    told = [briefings(asked.text) for asked in script.asked_in("turn")]
    assert told == [0, 0, 1, 1, 1], opencode.memory.log()


def test_nobody_is_briefed_without_a_compaction(opencode: Desk[OpenCode]) -> None:
    opencode.script.plays([calls(shell("true")), says("Done."), says("Done again.")])

    assert opencode.cli.prompt(PROMPT).status == 0
    assert opencode.cli.go_on("And again").status == 0

    assert not any(briefings(asked.text) for asked in opencode.script.asked)
    assert opencode.memory.recoveries() == []


def test_an_edit_of_a_file_that_another_agent_holds_is_refused(opencode: Desk[OpenCode]) -> None:
    held = opencode.project / "hello.py"
    opencode.hooked("--enforce-locks")
    assert fleetctl("agent", "start", "rival").status == 0
    assert fleetctl("lock", "acquire", str(held), "--agent", "rival").status == 0
    opencode.script.plays([*edits(str(held)), says("Somebody else has it.")])

    assert opencode.cli.prompt("Change it").status == 0

    assert held.read_text() == GREETING
    assert f"{held} is locked by rival since" in opencode.script.asked_in("turn")[-1].text
    assert opencode.memory.told("file_modified", "file") == []
