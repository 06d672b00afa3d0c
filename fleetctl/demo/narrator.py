"""Prints the demo: what is told, what is typed, what comes back, what the agents do.

Must not know the story.
"""

import shlex
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from fleetd.protocol.records import Event

from ..output import console
from .checks import Verdict

WIDEST = 96
NARROWEST = 40
INDENT = "    "

_TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "mission_created": lambda data: f"created: {data['title']}",
    "mission_completed": lambda _: "completed",
    "agent_registered": lambda data: f"joins as {data['role']}, pid {data['pid']}",
    "agent_deregistered": lambda _: "leaves",
    "agent_lost": lambda data: f"is lost: {data['reason']}",
    "sortie_completed": lambda data: f"completes: {data['title']}",
    "sortie_progressed": lambda data: f"reports {data['percent']}%: {data.get('notes')}",
    "sortie_blocked": lambda data: f"is blocked: {data['reason']}",
    "sortie_unblocked": lambda data: f"goes on with: {data['title']}",
    "lock_acquired": lambda data: f"locks {data['file']}, token {data['fencing_token']}",
    "command_finished": lambda data: f"{data['result']}: {data['command']}",
    "message_sent": lambda data: f"writes to {', '.join(data['to'])}: {data['subject']}",
    "fleet_checkpointed": lambda data: (
        f"checkpoint {data['checkpoint_id']} at {data['progress_percent']}%"
    ),
}
FOLLOWED = (*_TOLD, "fleet_recovered")


class Narrator:
    """Prints to one stream, in colour only where somebody sees it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        columns = shutil.get_terminal_size((WIDEST, 24)).columns
        self._width = max(NARROWEST, min(columns, WIDEST))

    def scene(self, title: str) -> None:
        """Begin a part of the story."""
        self._print()
        self._print(self._styled(f"== {title}", "bold"))

    def tell(self, text: str) -> None:
        """Say what happens and why."""
        self._print()
        # A path stays whole, so that it can be copied.
        self._print(
            textwrap.fill(text, self._width, break_long_words=False, break_on_hyphens=False)
        )

    def typed(self, *command: str, output: str) -> None:
        """Show a command as a person types it, and what it prints."""
        self._print()
        self._print(INDENT + self._styled(f"$ {_as_typed(command)}", "green"))
        for line in output.rstrip("\n").splitlines():
            self._print(self._folded(console.clean(line)))

    def _folded(self, line: str) -> str:
        """Fold a line that is too long for the terminal, its rest further in."""
        indent = INDENT + line[: len(line) - len(line.lstrip())]
        return textwrap.fill(
            line.strip(),
            self._width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        )

    def event(self, event: Event) -> None:
        """Print one line about something that happened, if it belongs to the story."""
        told = _TOLD.get(event.type)
        if told is None or str(event.data.get("file", "")).startswith(".git/"):
            return
        # A checkpoint carries the name of the agent whose work gave cause for it.
        by_itself = event.type == "fleet_checkpointed"
        who = "fleetd" if by_itself else event.agent_id or "the mission"
        text = console.clean(f"{who:<13} {told(event.data)}")
        style = "yellow" if event.type == "fleet_checkpointed" else "dim"
        room = self._width - len(INDENT)
        fitting = text if len(text) <= room else text[: room - 1] + "…"
        self._print(INDENT + self._styled(fitting, style))

    def check(self, verdicts: Sequence[Verdict]) -> None:
        """Print what was checked and how it came out."""
        self.scene("The check")
        self._print()
        for verdict in verdicts:
            word = ("ok    ", "green") if verdict.ok else ("FAILED", "red")
            self._print(f"{INDENT}{self._styled(*word)}  {verdict.check}")
            if not verdict.ok:
                self._print(self._folded(f"        {console.clean(verdict.detail)}"))

    def log(self, lines: Sequence[str]) -> None:
        """Show the last lines of the daemon's log."""
        for line in lines:
            self._print(self._folded(console.clean(line)))

    def blank(self) -> None:
        """Leave a line free."""
        self._print()

    def _styled(self, text: str, style: str) -> str:
        return console.styled(text, style, self._stream)

    def _print(self, text: str = "") -> None:
        print(text, file=self._stream, flush=True)


def _as_typed(command: tuple[str, ...]) -> str:
    return command[0] if len(command) == 1 else shlex.join(command)
