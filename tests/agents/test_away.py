"""A daemon that is away: the CLIs go on as if nothing was, and what was told is not lost."""

import os
from pathlib import Path

from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, Gemini, M
from tests.agents.script import Call, calls, says

# Ten hook calls find nobody there; a CLI alone takes two seconds.
SOON_S = 20


def _alone(desk: Desk[M], command: Call) -> None:
    """Have a CLI work while the daemon is away."""
    desk.daemon.stop()
    desk.script.plays([calls(command), says("Done.")])

    run = desk.cli.prompt("Go")

    assert run.status == 0, run.err
    assert run.seconds < SOON_S
    assert desk.script.kinds() == ["turn", "turn"]
    spool = Path(os.environ["XDG_STATE_HOME"], "fleet", "spool")
    waiting = len([*spool.glob("*.json")])
    assert waiting >= 5

    desk.daemon.start()

    desk.memory.soon_empty(spool)
    assert desk.memory.deliveries() == waiting
    assert desk.memory.told("prompt_submitted", "prompt") == ["Go"]
    assert desk.memory.told("command_finished", "command")[0] == "true"
    assert desk.memory.mission().title == "Go"


def test_claude_works_without_the_daemon(claude: Desk[Claude]) -> None:
    _alone(claude, Call("Bash", {"command": "true", "description": "Run it"}))


def test_codex_works_without_the_daemon(codex: Desk[Codex]) -> None:
    _alone(codex, Call("exec_command", {"cmd": "true"}))


def test_gemini_works_without_the_daemon(gemini: Desk[Gemini]) -> None:
    _alone(gemini, Call("run_shell_command", {"command": "true"}))


def test_claude_works_without_the_launcher(claude: Desk[Claude]) -> None:
    """Its hooks name the launcher itself; nobody has put anything in the place of a shell."""
    Path(os.environ["XDG_DATA_HOME"], "fleet", "fleet-hook").unlink()
    command = Call("Bash", {"command": "true", "description": "Run it"})
    claude.script.plays([calls(command), says("Done.")])

    run = claude.cli.prompt("Go")

    assert run.status == 0, run.err
    assert claude.script.kinds() == ["turn", "turn"]
    assert "fleet-hook" not in claude.script.asked[-1].text
    assert claude.memory.deliveries() == 0
