"""A person hands the work of Claude Code, which is idle, to Codex while both are there."""

import json
import shlex
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack

from tests.agents.desk import Desk
from tests.agents.machines import Claude, Codex
from tests.agents.project import GREETING, PROMPT
from tests.agents.script import Asked, Reply, calls, says
from tests.agents.test_claude import bash, becomes, edits, task
from tests.support.processes import fleetctl

OLD = "claude-A"
SOON_S = 30


def _locks() -> dict[str, tuple[str, int]]:
    """Return who holds each file, and with which token."""
    listed = json.loads(fleetctl("lock", "list", "--json").out)
    return {each["file"]: (each["held_by"], each["fencing_token"]) for each in listed}


def _names_the_thread(asked: Asked) -> bool:
    """Whether Codex asks for a title: in a terminal it does, in a thread of its own."""
    return '"thread_title' in asked.text.replace("\\", "")


class _Successor:
    """Codex, which ``fleetctl handoff`` starts in a terminal; it thinks until it may go on."""

    def __init__(self, codex: Desk[Codex]) -> None:
        self._codex, self._may_go_on = codex, threading.Event()
        self._stack = ExitStack()
        codex.script.aside = self._thinks

    def _thinks(self, asked: Asked) -> Reply | None:
        if _names_the_thread(asked):
            return says('{"title": "Greeting"}')
        assert self._may_go_on.wait(SOON_S)
        return None

    def begin(self) -> None:
        """Start it, and wait until it asks its model for the first time."""
        argv = [sys.executable, "-m", "fleetctl", "handoff", OLD, "--to", "codex", "--exec"]
        self._seat = self._stack.enter_context(self._codex.cli.sits(argv, self._codex.project))
        self._seat.until("Hand this work over? [y/N]")
        self._seat.press("y", "enter")
        script = self._codex.script
        self._seat.until(lambda _: script.asked_in("turn"), seconds=SOON_S)

    def end(self) -> str:
        """Let it answer, and leave it as a person does; return what is on the screen then."""
        self._may_go_on.set()
        self._seat.until("I go on with it.", seconds=SOON_S)
        self._seat.press("/quit")
        self._seat.until("/quit")
        self._seat.press("enter")
        shown = self._seat.until("To undo this: fleetctl resume --checkpoint", seconds=SOON_S)
        status = self._seat.rest()
        self._stack.close()
        assert status == 0, shown
        return shown


def test_codex_gets_the_work_of_an_idle_claude_whose_edit_is_refused_then(
    claude: Desk[Claude], codex: Desk[Codex]
) -> None:
    claude.hooked("--enforce-locks")
    files = [str(claude.project / name) for name in ("hello.py", "other.py")]
    lock = [sys.executable, "-m", "fleetctl", "lock", "acquire", "--agent", OLD]
    claude.script.plays(
        [
            calls(
                task("Greet the world"), bash(" && ".join(shlex.join([*lock, f]) for f in files))
            ),
            calls(becomes(1, "in_progress")),
            says("I am about to greet the world."),
            *edits(claude, "hello", "hello, world"),
            says("Somebody else has it."),
        ]
    )
    codex.script.plays([says("I go on with it.")])
    successor, before, after = _Successor(codex), {}, {}

    def answered(number: int) -> Sequence[str] | None:
        if number == 1:
            return None
        before.update(_locks())
        successor.begin()
        after.update(_locks())
        return ["Go on"]

    talked = claude.cli.typed(PROMPT, answered, FLEET_AGENT_ID=OLD)
    ended = successor.end()

    assert talked.status == 0, talked.err
    (asked,) = (each for each in codex.script.asked_in("turn") if not _names_the_thread(each))
    (heir,) = (each.id for each in claude.memory.agents() if each.id != OLD)
    assert heir.startswith("codex-")
    assert f"continue the work of {OLD}. You are {heir} from now on" in asked.text
    assert "Greet the world" in asked.text
    assert "I am about to greet the world." in asked.text
    assert PROMPT in asked.text
    assert asked.text.count("### Next Steps") == 1, "the briefing came twice"
    assert asked.text.count("took over the work of") == 0

    assert [who for who, _ in before.values()] == [OLD, OLD], claude.memory.log()
    assert [who for who, _ in after.values()] == [heir, heir]
    assert before.keys() == after.keys()
    assert all(after[file][1] > before[file][1] for file in before)
    assert [(each.title, each.assigned_to) for each in claude.memory.sorties()] == [
        ("Greet the world", heir)
    ]
    assert f"{heir} has the work of {OLD} since" in ended

    # The old one is told once, and cannot change what is not its own any more.
    turns = [each.text for each in claude.script.asked_in("turn")]
    assert f"hello.py is locked by {heir} since" in turns[-1]
    assert turns[-1].count(f"The user handed the work of {OLD} over to {heir}") == 1
    assert (claude.project / "hello.py").read_text() == GREETING
