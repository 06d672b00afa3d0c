"""Codex, the real one: its plan, its patches and its commands, before and after a compaction."""

import json

from tests.agents.desk import Desk
from tests.agents.machines import CODEX_CODE_MODEL, Codex
from tests.agents.project import PATCH, PROMPT, SHOUT, SHOUTED
from tests.agents.script import Call, calls, says
from tests.agents.wording import briefings, changed, steps
from tests.support.processes import fleetctl

STEPS = ("Look at the greeting", "Change the greeting", "Try it out")


def shell(command: str) -> Call:
    return Call("exec_command", {"cmd": command})


def plan(done: int) -> list[dict[str, str]]:
    """Return the plan as it is when some of its steps are done and the next one has begun."""
    statuses = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
    return [{"step": s, "status": status} for s, status in zip(STEPS, statuses, strict=False)]


def planned(done: int) -> Call:
    return Call("update_plan", {"plan": plan(done)})


def test_work_goes_on_after_compactions_in_the_middle_of_a_turn(codex: Desk[Codex]) -> None:
    codex.script.plays(
        [
            calls(planned(0)),
            calls(shell(SHOUT)),
            calls(planned(1)),
            calls(shell("false")),
            calls(Call("apply_patch", PATCH), full=True),
            calls(planned(2)),
            calls(shell("python3 hello.py"), full=True),
            calls(planned(3)),
            says("It greets the world."),
        ]
    )

    run = codex.cli.prompt(PROMPT)

    assert run.status == 0, run.err
    first, second = codex.script.after_compactions()
    before = [asked.text for asked in codex.script.before_compaction()]
    assert SHOUTED in before[-1]
    assert not any(map(briefings, before))
    assert SHOUTED not in first.text
    assert briefings(first.text) == briefings(second.text) == 1
    assert "Change the greeting" in steps(first.text)
    assert "Try it out" in steps(second.text)
    for asked in (first, second):
        assert changed(asked.text) == ["hello.py"]

    memory = codex.memory
    mission = memory.mission()
    assert (mission.title, mission.project_dir) == (PROMPT, str(codex.project))
    assert mission.status == "completed"
    assert memory.plan() == [(step, "completed") for step in STEPS]
    assert memory.told("prompt_submitted", "prompt") == [PROMPT]
    assert memory.told("file_modified", "file") == [str(codex.project / "hello.py")]
    assert memory.commands() == [(SHOUT, "PASS"), ("false", "FAIL"), ("python3 hello.py", "PASS")]
    assert memory.told("tool_failed", "name") == ["Bash"]
    assert memory.compactions() == 2
    assert [each.state for each in memory.recoveries()] == ["resumed", "resumed"]


def test_a_model_that_calls_its_tools_from_a_program_is_followed_as_well(
    codex: Desk[Codex],
) -> None:
    look = f"await tools.update_plan({json.dumps({'plan': plan(0)})});"
    shout = f"const r = await tools.exec_command({json.dumps({'cmd': SHOUT})}); text(r.output);"
    go_on = f"await tools.update_plan({json.dumps({'plan': plan(1)})});"
    patch = f"text(await tools.apply_patch({json.dumps(PATCH)}));"
    fail = 'const r = await tools.exec_command({"cmd": "false"}); text(r.output);'
    codex.script.plays(
        [
            calls(Call("exec", look + shout)),
            calls(Call("exec", go_on + patch), full=True),
            calls(Call("exec", fail)),
            says("More of it tomorrow."),
        ]
    )

    run = codex.cli.prompt(PROMPT, "--model", CODEX_CODE_MODEL)

    assert run.status == 0, run.err
    (after,) = codex.script.after_compactions()
    assert briefings(after.text) == 1
    assert "Change the greeting" in steps(after.text)
    assert changed(after.text) == ["hello.py"]
    statuses = [status for _, status in codex.memory.plan()]
    assert statuses[:2] == ["completed", "in_progress"]
    assert codex.memory.commands() == [(SHOUT, "PASS"), ("false", "FAIL")]
    assert codex.memory.told("file_modified", "file") == [str(codex.project / "hello.py")]


def test_a_session_that_goes_on_in_another_process_is_briefed_once(codex: Desk[Codex]) -> None:
    script = codex.script
    script.plays([calls(planned(0)), calls(shell("true"), full=True)])
    script.plays([says("That was the first part.", full=True)])
    assert codex.cli.prompt(PROMPT).status == 0
    script.plays([calls(shell(SHOUT)), says("Done.")])

    assert codex.cli.go_on("Go on").status == 0

    assert script.kinds() == ["turn", "turn", "compaction", "turn", "compaction", "turn", "turn"]
    assert [briefings(asked.text) for asked in script.asked_in("turn")] == [0, 0, 1, 1, 1]
    assert codex.memory.mission().title == PROMPT
    assert codex.memory.compactions() == 2


def test_nobody_is_briefed_without_a_compaction_and_the_doctor_is_content(
    codex: Desk[Codex],
) -> None:
    codex.script.plays([calls(planned(0)), calls(shell("true")), says("Done.")])

    assert codex.cli.prompt(PROMPT).status == 0

    assert not any(briefings(asked.text) for asked in codex.script.asked)
    assert codex.memory.recoveries() == []
    doctor = fleetctl("hooks", "doctor", "--live")
    assert doctor.status == 0, doctor.out
    assert "no unknown events or fields in the last week" in doctor.out
    assert "0.169.0, as in its last events" in doctor.out
