"""The demo's story, scene by scene; everything it prints comes from the real run."""

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from subprocess import CompletedProcess
from typing import Any, TextIO

import msgspec

from fleetd.protocol.errors import FleetError
from fleetd.protocol.records import Event
from fleetd.protocol.requests.lock import LockList

from ..args import Namespace
from ..output import console
from . import project
from .agents import PATIENCE_S, EventFollower
from .checks import Observations, Verdict, examine, read
from .project import DISPATCH, FIRST, SECOND, SUCCESSOR, WAITING
from .sandbox import Stage, StageFailed, open_stage

WIDEST = 96
NARROWEST = 40
INDENT = "    "

_EVENT_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
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
FOLLOWED = (*_EVENT_TEXTS, "fleet_recovered")


class Narrator:
    """Prints to one stream, in colour only on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        columns = shutil.get_terminal_size((WIDEST, 24)).columns
        self._width = max(NARROWEST, min(columns, WIDEST))

    def scene(self, title: str) -> None:
        """Start a part of the story."""
        self.print()
        self.print(self._styled(f"== {title}", "bold"))

    def print_paragraph(self, text: str) -> None:
        """Print what happens and why."""
        self.print()
        # A path stays whole, so that it can be copied.
        self.print(textwrap.fill(text, self._width, break_long_words=False, break_on_hyphens=False))

    def typed(self, *command: str, output: str) -> None:
        """Show a command as a user types it, and what it prints."""
        self.print()
        typed = command[0] if len(command) == 1 else shlex.join(command)
        self.print(INDENT + self._styled(f"$ {typed}", "green"))
        for line in output.rstrip("\n").splitlines():
            self.print(self._folded(console.clean(line)))

    def _folded(self, line: str) -> str:
        """Wrap a line that is too long for the terminal, with the rest indented further."""
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
        describe = _EVENT_TEXTS.get(event.type)
        if describe is None or str(event.data.get("file", "")).startswith(".git/"):
            return
        # A checkpoint's event names the agent whose work caused it.
        by_itself = event.type == "fleet_checkpointed"
        actor = "fleetd" if by_itself else event.agent_id or "the mission"
        text = console.clean(f"{actor:<13} {describe(event.data)}")
        style = "yellow" if by_itself else "dim"
        room = self._width - len(INDENT)
        fitting = text if len(text) <= room else text[: room - 1] + "…"
        self.print(INDENT + self._styled(fitting, style))

    def show_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Print what was checked and the results."""
        self.scene("The check")
        self.print()
        for verdict in verdicts:
            word = ("ok    ", "green") if verdict.ok else ("FAILED", "red")
            self.print(f"{INDENT}{self._styled(*word)}  {verdict.check}")
            if not verdict.ok:
                self.print(self._folded(f"        {console.clean(verdict.detail)}"))

    def log(self, lines: Sequence[str]) -> None:
        """Show the last lines of the daemon's log."""
        for line in lines:
            self.print(self._folded(console.clean(line)))

    def _styled(self, text: str, style: str) -> str:
        return console.styled(text, style, self._stream)

    def print(self, text: str = "") -> None:
        """Print a line unchanged."""
        print(text, file=self._stream, flush=True)


HEIR = ("--agent", SUCCESSOR, "--take-over-from", SECOND, "--scope", "agent")
PROMPT_BEGINS = "--- Recovery Context ---\n"
TURN_S = 0.5


class Tour:
    """One run of the demo on a stage."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self._stage = stage
        self._print_paragraph = narrator.print_paragraph
        self._scene = narrator.scene
        self._narrator = narrator
        self._events: list[Event] = []
        self._prompt = ""
        self._seen = Observations()

    def play(self) -> list[Verdict]:
        """Tell the whole story and return the verdicts of the final check."""
        self._set_the_task()
        self._start_daemon()
        with EventFollower(self._stage.socket) as client:
            client.follow(FOLLOWED)
            self._work(client)
            self._look()
            self._lose_one(client)
            self._resume()
            self._until(
                client, lambda e: e.type == "fleet_recovered", "for the recovery", show=False
            )
            self._fence()
            self._finish(client)
            self._look_again()
            final = read(client, self._mission_id(), self._stage.checkpoints, self._seen)
        return list(examine(final))

    def _set_the_task(self) -> None:
        self._print_paragraph(
            "Agents forget: a context is compacted, a process dies. fleetd remembers for them. "
            "This demo shows it with real processes in a temporary directory; nothing of yours "
            "is touched."
        )
        self._scene("The task")
        self._print_paragraph(
            f"A scratch git repository holds a small library, {project.PACKAGE}: "
            f"{len(project.PIECES)} modules whose functions are missing, with unit tests that fail."
        )
        self._stage.lay_out()
        self._seen.tests_failed_before = not self._test()

    def _test(self) -> bool:
        done = self._stage.run(sys.executable, "-m", "unittest", "-q")
        tail = "\n".join(done.stdout.splitlines()[-3:])
        self._narrator.typed("python -m unittest -q 2>&1 | tail -n 3", output=tail)
        return done.returncode == 0

    def _start_daemon(self) -> None:
        self._scene("The daemon")
        pid = self._stage.start_daemon()
        self._print_paragraph(
            f"fleetd runs (pid {pid}). It remembers missions, locks, mail and events in one SQLite "
            "database, so that no agent has to."
        )

    def _work(self, client: EventFollower) -> None:
        self._scene("The work")
        self._print_paragraph(
            "Three processes start. The dispatch plans the mission and hands out its sorties; two "
            "specialists lock files, edit, test and commit. This is the event log as it grows:"
        )
        self._narrator.print()
        self._stage.start_agent("dispatch", DISPATCH)
        started = self._until(client, lambda e: e.type == "mission_created", "for a mission")
        for name in (FIRST, SECOND):
            self._stage.start_agent("specialist", name, str(started.mission_id))
        self._until(
            client,
            lambda e: e.type == "message_sent" and e.data["subject"] == WAITING,
            f"for {FIRST} to need {SECOND}",
        )

    def _until(
        self,
        client: EventFollower,
        wanted: Callable[[Event], bool],
        what: str,
        *,
        show: bool = True,
    ) -> Event:
        """Print events until the wanted one comes; raises StageFailed when it does not."""
        waited = 0.0
        while waited < PATIENCE_S:
            event = client.next_event(TURN_S)
            if event is None:
                waited += TURN_S
                self._stage.check()
                continue
            self._events.append(event)
            if show:
                self._narrator.event(event)
            if wanted(event):
                return event
        raise StageFailed(f"Waited {PATIENCE_S:.0f} s without success {what}")

    def _fleetctl(self, *arguments: str, expected: int = 0) -> str:
        """Run and show a command, return its output; raises StageFailed for another status."""
        done = self._typed(*arguments)
        if done.returncode != expected:
            raise StageFailed(f"fleetctl {arguments[0]} ended with status {done.returncode}")
        return done.stdout

    def _typed(self, *arguments: str) -> CompletedProcess[str]:
        """Run a command of fleetctl as a user would, and show it."""
        done = self._stage.run(sys.executable, "-m", "fleetctl", *arguments)
        self._narrator.typed("fleetctl", *arguments, output=done.stdout)
        return done

    def _git(self, *arguments: str) -> str:
        done = self._stage.run("git", *arguments)
        self._narrator.typed("git", *arguments, output=done.stdout)
        return done.stdout

    def _look(self) -> None:
        self._scene("The operator looks")
        self._print_paragraph(f"{FIRST} waits for {SECOND}, which is in the middle of a file.")
        self._fleetctl("status")
        self._print_paragraph(
            "fleetd takes a checkpoint at each quarter, in the transaction that reaches it: "
            "sorties, locks, unread mail and what it takes to go on."
        )
        self._fleetctl("checkpoint", "list")

    def _lose_one(self, client: EventFollower) -> None:
        self._scene("The loss")
        pid = self._stage.kill(SECOND)
        self._print_paragraph(
            f"{SECOND} (pid {pid}) is killed with SIGKILL. Nobody said goodbye: its lock is "
            "orphaned, its file breaks off in the middle of a line, and its mail is unread. "
            "fleetd watches the processes of its agents, and keeps the state:"
        )
        self._narrator.print()
        self._until(
            client,
            lambda e: e.type == "fleet_checkpointed" and e.data["trigger"] == "error",
            f"for {SECOND} to be missed",
        )
        file = f"{project.PACKAGE}/{project.HALF_DONE}.py"
        self._git("status", "--short")
        tail = (self._stage.project / file).read_text().splitlines()[-2:]
        self._narrator.typed("tail", "-n", "2", file, output="\n".join(tail))
        self._fleetctl("lock", "list")
        self._fleetctl("mail", "list", "--pending")

    def _resume(self) -> None:
        self._scene("The recovery")
        self._print_paragraph(
            f"A new agent, {SUCCESSOR}, is to take over. --scope agent leaves the others alone. "
            "First without changing anything:"
        )
        self._fleetctl("resume", "--dry-run", *HEIR)
        self._print_paragraph(
            "That is right. Now for real; the text at the end is for the new agent."
        )
        printed = self._fleetctl("resume", "--yes", *HEIR)
        self._prompt = printed.partition(PROMPT_BEGINS)[2]

    def _fence(self) -> None:
        self._print_paragraph(
            "Should the killed agent come back, its fencing token is no longer valid: a program "
            "that guards the file refuses it."
        )
        file, old, new = self._tokens()
        self._fleetctl("lock", "check", file, str(old), expected=1)
        self._seen.stale_token_refused = True
        self._fleetctl("lock", "check", file, str(new))
        self._seen.new_token_accepted = True

    def _tokens(self) -> tuple[str, int, int]:
        """Return the file that was left half written, the dead agent's token and the new one."""
        locked = [e for e in self._events if e.type == "lock_acquired"]
        last = [e for e in locked if e.agent_id == SECOND][-1].data
        with EventFollower(self._stage.socket) as client:
            now = client.call(LockList(held_by=SUCCESSOR)).locks
        new = next((lock.fencing_token for lock in now if lock.file == last["file"]), 0)
        return last["file"], last["fencing_token"], new

    def _finish(self, client: EventFollower) -> None:
        self._scene("The successor")
        self._print_paragraph(
            f"{SUCCESSOR} is a new process. It gets the briefing on stdin and nothing else: "
            "from it, it learns its sorties, its lock, its mail and which file is half written."
        )
        self._narrator.print()
        self._stage.start_agent("successor", SUCCESSOR)
        self._stage.send_input(SUCCESSOR, self._prompt)
        self._until(client, lambda e: e.type == "mission_completed", "for the mission to end")
        for name in (FIRST, SUCCESSOR, DISPATCH):
            if status := self._stage.leave(name):
                raise StageFailed(f"{name} ended with status {status}")

    def _look_again(self) -> None:
        mission = self._mission_id()
        self._scene("The end")
        self._fleetctl("mission", "show", mission)
        self._fleetctl("agent", "list")
        self._fleetctl("checkpoint", "list", "--mission", mission)
        self._seen.checkpoints_intact = self._typed("checkpoint", "verify", "--all").returncode == 0
        self._git("log", "--format=%h %an: %s")
        self._seen.all_committed = not self._git("status", "--short")
        self._seen.tests_pass = self._test()

    def _mission_id(self) -> str:
        return next(str(e.mission_id) for e in self._events if e.type == "mission_created")


def run(args: Namespace) -> int:
    """Play the demo; return 0 when every check passes, else 1."""
    narrator = Narrator(sys.stderr if args.json else sys.stdout)
    began = time.monotonic()
    try:
        with open_stage(keep=args.keep) as stage:
            verdicts = _play(stage, narrator)
    except StageFailed as error:
        verdicts = _broken_off(error)
    else:
        if args.keep:
            narrator.print_paragraph(f"The directory stays: {stage.directory}")
    seconds = time.monotonic() - began
    failed = sum(not verdict.ok for verdict in verdicts)
    narrator.print_paragraph(
        f"{len(verdicts) - failed} of {len(verdicts)} checks are ok, after {seconds:.1f} s."
    )
    if args.json:
        checks = msgspec.to_builtins(verdicts)
        console.print_json({"ok": not failed, "seconds": round(seconds, 1), "checks": checks})
    return 1 if failed else 0


def _play(stage: Stage, narrator: Narrator) -> list[Verdict]:
    try:
        verdicts = Tour(stage, narrator).play()
    except (StageFailed, FleetError) as error:
        verdicts = _broken_off(error)
    narrator.show_verdicts(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        narrator.print_paragraph("The last lines that fleetd and the agents logged:")
        narrator.log(stage.log_tail())
    return verdicts


def _broken_off(error: Exception) -> list[Verdict]:
    return [Verdict(check="the demo runs to its end", ok=False, detail=str(error))]
