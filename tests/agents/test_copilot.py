"""Copilot CLI, the real one: it compacts in the background, and is briefed in the meantime."""

from tests.agents.desk import Desk
from tests.agents.machines import Copilot
from tests.agents.project import PROMPT, SHOUT, SHOUTED
from tests.agents.script import Call, calls, says
from tests.agents.wording import briefings, changed


def shell(command: str) -> Call:
    return Call("bash", {"command": command, "description": "Run it"})


def edits(file: str) -> Call:
    return Call("edit", {"path": file, "old_str": "hello", "new_str": "hello, world"})


def test_a_compaction_in_the_background_is_briefed_with_the_next_tool(
    copilot: Desk[Copilot],
) -> None:
    script, file = copilot.script, str(copilot.project / "hello.py")
    script.plays([calls(shell(SHOUT)), calls(edits(file), full=True)])
    script.plays([calls(shell("true")), calls(shell("false")), says("Tried.")])

    assert copilot.cli.prompt(PROMPT).status == 0

    assert script.kinds().count("compaction") == 1
    told = [briefings(asked.text) for asked in script.asked_in("turn")]
    # From the result of the next tool on: it stays when the older messages go.
    assert told == [0, 0, 0, 1, 1], copilot.memory.log()
    *_, last = script.asked_in("turn")
    assert SHOUTED not in last.text
    assert changed(last.text) == ["hello.py"]
    assert PROMPT in last.text

    memory = copilot.memory
    assert (memory.mission().title, memory.mission().project_dir) == (PROMPT, str(copilot.project))
    assert memory.told("prompt_submitted", "prompt") == [PROMPT]
    assert memory.told("file_modified", "file") == [file]
    assert memory.commands() == [(SHOUT, "PASS"), ("true", "PASS"), ("false", "FAIL")]
    assert memory.compactions() == 1


def test_a_compaction_at_the_end_of_a_turn_is_briefed_with_the_next_prompt(
    copilot: Desk[Copilot],
) -> None:
    script = copilot.script
    script.plays([calls(shell(SHOUT)), calls(shell("true"), full=True), says("One.")])
    assert copilot.cli.prompt(PROMPT).status == 0
    script.plays([says("Two."), says("Three.")])

    assert copilot.cli.go_on("Go on").status == 0
    assert copilot.cli.go_on("And again").status == 0

    assert script.kinds().count("compaction") == 1
    told = [briefings(asked.text) for asked in script.asked_in("turn")]
    assert told == [0, 0, 0, 1, 1], copilot.memory.log()


def test_a_subagent_works_in_the_mission_of_its_session(copilot: Desk[Copilot]) -> None:
    looks = {
        "name": "look",
        "description": "Look around",
        "prompt": "Read it",
        "agent_type": "explore",
    }
    copilot.script.plays([calls(Call("task", looks)), calls(shell("true")), says("Found.")])
    copilot.script.plays([says("Done.")])

    assert copilot.cli.prompt(PROMPT).status == 0

    memory = copilot.memory
    assert memory.told("prompt_submitted", "prompt") == [PROMPT]
    assert memory.mission().title == PROMPT
    assert "Found." in memory.told("agent_answered", "message")
    agents = {event.agent_id for event in memory.events("agent_registered")}
    assert len(agents) == 2
    assert {event.agent_id for event in memory.events("command_finished")} < agents


def test_nobody_is_briefed_without_a_compaction(copilot: Desk[Copilot]) -> None:
    copilot.script.plays([calls(shell("true")), says("Done."), says("Done again.")])

    assert copilot.cli.prompt(PROMPT).status == 0
    assert copilot.cli.go_on("And again").status == 0

    assert not any(briefings(asked.text) for asked in copilot.script.asked)
    assert copilot.memory.recoveries() == []
