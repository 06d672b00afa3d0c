"""Gemini CLI, the real one: it tells of no compaction, and the next request holds the briefing."""

from tests.agents.desk import Desk
from tests.agents.machines import Gemini
from tests.agents.project import PROMPT, SHOUT, SHOUTED
from tests.agents.script import Asked, Call, calls, says
from tests.agents.wording import briefings, changed
from tests.support.processes import fleetctl


def shell(command: str) -> Call:
    return Call("run_shell_command", {"command": command})


def writes(file: str, content: str) -> Call:
    return Call("write_file", {"file_path": file, "content": content})


def _opening(asked: Asked) -> str:
    text: str = asked.body["contents"][0]["parts"][0]["text"]
    return text


def test_the_first_request_after_a_compaction_that_nobody_tells_of_holds_the_briefing_once(
    gemini: Desk[Gemini],
) -> None:
    script = gemini.script
    script.plays([calls(shell(SHOUT)), calls(writes("hello.py", "print('hello, world')\n"))])
    script.plays([says("Written.")])
    assert gemini.cli.prompt(PROMPT).status == 0
    script.plays([calls(shell("true"), full=True), calls(shell("false")), says("Tried.")])

    assert gemini.cli.go_on("Try it out").status == 0

    # The tool's result was there before the compaction: the request itself is what is changed.
    assert script.kinds()[-4:] == ["compaction", "compaction", "turn", "turn"]
    *before, first, after = script.asked_in("turn")
    assert SHOUTED in before[-1].text
    assert SHOUTED not in first.text
    told = [briefings(asked.text) for asked in script.asked_in("turn")]
    assert told == [0, 0, 0, 0, 1, 1], gemini.memory.log()
    for briefed in (first, after):
        assert changed(briefed.text) == ["hello.py"]
        assert PROMPT in briefed.text
    # The environment that the request begins with is still there, before the briefing.
    opening = _opening(first)
    assert opening.startswith(_opening(before[0]))
    assert opening.endswith("</hook_context>")
    # Of that nothing stays in the conversation: what does comes with the next tool.
    assert _opening(after) == _opening(before[0])

    memory = gemini.memory
    mission = memory.mission()
    assert (mission.title, mission.project_dir) == (PROMPT, str(gemini.project))
    assert mission.status == "completed"
    assert memory.told("prompt_submitted", "prompt") == [PROMPT, "Try it out"]
    assert memory.told("file_modified", "file") == [str(gemini.project / "hello.py")]
    commands = [(SHOUT, "PASS"), ("true", "PASS"), ("false", "FAIL")]
    assert memory.commands() == commands
    assert [each.state for each in memory.recoveries()] == ["resumed"]


def test_a_compaction_at_the_end_of_a_turn_is_briefed_with_the_next_prompt(
    gemini: Desk[Gemini],
) -> None:
    script = gemini.script
    script.plays([calls(shell(SHOUT)), says("One.")])
    assert gemini.cli.prompt(PROMPT).status == 0
    script.plays([calls(shell("true"), full=True), says("Two.")])
    assert gemini.cli.go_on("Try it out").status == 0
    script.plays([says("Three."), says("Four.")])

    assert gemini.cli.go_on("Go on").status == 0
    assert gemini.cli.go_on("And again").status == 0

    assert script.kinds()[3:5] == ["compaction", "compaction"]
    told = [briefings(asked.text) for asked in script.asked_in("turn")]
    assert told == [0, 0, 0, 1, 1, 1], gemini.memory.log()
    assert len(gemini.memory.recoveries()) == 1


def test_nobody_is_briefed_without_a_compaction_and_the_doctor_is_content(
    gemini: Desk[Gemini],
) -> None:
    gemini.script.plays([calls(shell("true")), says("Done."), says("Done again.")])

    assert gemini.cli.prompt(PROMPT).status == 0
    assert gemini.cli.go_on("And again").status == 0

    assert not any(briefings(asked.text) for asked in gemini.script.asked)
    assert gemini.memory.recoveries() == []
    doctor = fleetctl("hooks", "doctor", "--live")
    assert doctor.status == 0, doctor.out
    assert "no unknown events or fields in the last week" in doctor.out
