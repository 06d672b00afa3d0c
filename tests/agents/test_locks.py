"""Locks that are enforced: an edit of what another agent holds is refused, with the reason."""

from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex, Gemini, M
from tests.agents.project import GREETING, PATCH
from tests.agents.script import Call, calls, says
from tests.support.processes import fleetctl


def _refused(desk: Desk[M], *edit: Call) -> None:
    """Have a CLI edit a file that another agent holds."""
    held = desk.project / "hello.py"
    desk.hooked("--enforce-locks")
    assert fleetctl("agent", "start", "rival").status == 0
    assert fleetctl("lock", "acquire", str(held), "--agent", "rival").status == 0
    desk.script.plays([*(calls(each) for each in edit), says("Somebody else has it.")])

    run = desk.cli.prompt("Change it")

    assert run.status == 0, run.err
    assert held.read_text() == GREETING
    assert f"{held} is locked by rival since" in desk.script.asked_in("turn")[-1].text
    assert desk.memory.told("file_modified", "file") == []


def test_claude_is_refused_a_file_that_another_agent_holds(claude: Desk[Claude]) -> None:
    file = str(claude.project / "hello.py")
    change = {"file_path": file, "old_string": "hello", "new_string": "hello, world"}
    _refused(claude, Call("Read", {"file_path": file}), Call("Edit", change))


def test_codex_is_refused_a_file_that_another_agent_holds(codex: Desk[Codex]) -> None:
    _refused(codex, Call("apply_patch", PATCH))


def test_gemini_is_refused_a_file_that_another_agent_holds(gemini: Desk[Gemini]) -> None:
    _refused(gemini, Call("write_file", {"file_path": "hello.py", "content": "print()\n"}))
