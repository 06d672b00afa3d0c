"""Claude Code is killed in the middle of its work, and Codex, at work on its own, takes over."""

import shlex
import sys

from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex
from tests.agents.project import PROMPT, SHOUT, SHOUTED
from tests.agents.script import calls, says
from tests.agents.test_claude import bash, becomes, edits, task
from tests.agents.test_codex import planned, shell
from tests.agents.wording import briefings, changed, steps
from tests.support.processes import fleetctl

LOST, HEIR = "claude-A", "codex-B"
OWN_PROMPT = "Look after the notes"


def test_codex_takes_over_from_claude_compacts_and_is_briefed_about_the_mission(
    claude: Desk[Claude], codex: Desk[Codex]
) -> None:
    memory = claude.memory
    claude.script.plays(
        [
            calls(task("Look at the greeting"), task("Greet the world"), task("Tell the user")),
            calls(becomes(1, "in_progress")),
            calls(becomes(1, "completed"), becomes(2, "in_progress")),
            *edits(claude, "hello", "hello, world"),
            calls(bash("kill -KILL $PPID")),
        ]
    )
    killed = claude.cli.prompt(PROMPT, FLEET_AGENT_ID=LOST)
    assert killed.status == -9, killed.err
    memory.soon_lost(LOST)
    mission = memory.mission()

    take_over = ["resume", "--mission", mission.id, "--take-over-from", LOST, "--agent", HEIR]
    command = shlex.join([sys.executable, "-m", "fleetctl", *take_over, "--yes"])
    codex.script.plays(
        [
            calls(planned(0)),
            calls(shell(SHOUT)),
            calls(planned(1)),
            calls(shell(command)),
            calls(shell("true"), full=True),
            calls(planned(2)),
            says("The greeting is next."),
        ]
    )

    run = codex.cli.prompt(OWN_PROMPT, FLEET_AGENT_ID=HEIR)

    assert run.status == 0, run.err
    turns = [asked.text for asked in codex.script.before_compaction()]
    assert "To undo this: fleetctl resume --checkpoint" in turns[-1]
    told = f"{HEIR} took over the work of {LOST}, which is lost, and works in mission {mission.id}"
    assert [asked.count(told) for asked in turns] == [0, 0, 0, 0, 1], memory.log()
    (after,) = codex.script.after_compactions()
    assert SHOUTED in turns[-1]
    assert SHOUTED not in after.text
    assert briefings(after.text) == 1, memory.log()
    assert f"mission {mission.id}" in after.text
    for step in ("Greet the world", "Tell the user", "Change the greeting", "Try it out"):
        assert step in steps(after.text)
    assert PROMPT in after.text
    assert OWN_PROMPT in after.text
    assert changed(after.text) == ["hello.py"]

    assert [each.state for each in memory.recoveries()] == ["resumed", "resumed"]
    assert [(each.title, each.status, each.assigned_to) for each in memory.sorties(mission.id)] == [
        ("Look at the greeting", "completed", LOST),
        ("Greet the world", "in_progress", HEIR),
        ("Tell the user", "assigned", HEIR),
        ("Change the greeting", "completed", HEIR),
        ("Try it out", "in_progress", HEIR),
    ]
    (own,) = (each for each in memory.missions() if each.id != mission.id)
    assert (own.title, own.status) == (OWN_PROMPT, "cancelled")
    assert memory.sorties(own.id)[0].title == "Look at the greeting"
    status = fleetctl("status")
    assert "not active again yet" not in status.out
