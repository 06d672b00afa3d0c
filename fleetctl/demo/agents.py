"""The demo's agents, each in its own process: ``python -m fleetctl.demo.agents <role> <id>``.

They replace language models: their plans are fixed, but everything they do is real.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleetd.host import paths
from fleetd.protocol.records import Event, Lock, Message, Sortie
from fleetd.protocol.requests.agent import AgentDeregister, AgentNote, AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockList, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageSend
from fleetd.protocol.requests.mission import (
    MissionComplete,
    MissionCreate,
    MissionGet,
    MissionStart,
    NewSortie,
)
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieList,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from fleetd.protocol.types import Role

from ..client import Fleet
from . import project
from .project import (
    DISPATCH,
    FIRST,
    GO_AHEAD,
    ORDERS,
    QUESTION,
    RULING,
    SECOND,
    WAITING,
    Module,
    piece_of,
)

PATIENCE_S = 30.0

T = TypeVar("T")


class NothingCame(Exception):
    """An expected event did not come in time."""


class EventFollower(Fleet):
    """A client with one subscription."""

    def follow(self, types: Sequence[str]) -> None:
        """Subscribe to events of these types, from the beginning of the log."""
        self._followed = self.events(since=0, types=types)

    def next_event(self, wait_s: float) -> Event | None:
        """Return the next event; None after ``wait_s`` seconds without one."""
        return self._followed.next(wait_s)

    def until(self, look: Callable[[], T | None], what: str) -> T:
        """Call ``look`` now and after every event until it finds something; raises NothingCame."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := look()) is None:
            if self.next_event(deadline - time.monotonic()) is None:
                raise NothingCame(f"This did not happen within {PATIENCE_S:.0f} s: {what}")
        return found


_SECTION = re.compile(r"^### (.+)$", re.MULTILINE)
_MISSION = re.compile(r"^fleetd recorded .*\bmission (msn-\w+)", re.MULTILINE)
_ITEM = re.compile(r"^- (\S+)$", re.MULTILINE)


class PromptFacts(NamedTuple):
    """What a briefing says about the work to continue."""

    mission_id: str
    changed: list[str]
    mail: str


def read(prompt: str) -> PromptFacts:
    """Return the facts of a briefing; raises ValueError when it names no mission."""
    mission = _MISSION.search(prompt)
    if mission is None:
        raise ValueError("The briefing names no mission.")
    parts = _SECTION.split(prompt)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    changed = [found[1] for found in _ITEM.finditer(sections["Files Modified"])]
    return PromptFacts(mission[1], changed, sections.get("Others", ""))


INDEX = ".git/index"


class Worker:
    """One agent, at work in the current directory."""

    def __init__(self, client: EventFollower, agent_id: str, role: Role, mission_id: str) -> None:
        self.client = client
        self.id = agent_id
        self.mission_id = mission_id
        self.project = Path.cwd()
        client.call(
            AgentRegister(
                agent_id=agent_id,
                role=role,
                harness="demo",
                pid=os.getpid(),
                mission_id=mission_id,
                cwd=str(self.project),
            )
        )

    def leave(self) -> None:
        """Deregister the agent."""
        self.client.call(AgentDeregister(agent_id=self.id, reason="done"))

    def write(self, to: str, subject: str, body: str | None = None) -> None:
        """Send a message."""
        self.client.call(
            MessageSend(
                sender=self.id, to=[to], subject=subject, body=body, mission_id=self.mission_id
            )
        )

    def inbox(self) -> list[Message]:
        """Return the messages that wait for an acknowledgement."""
        return self.client.call(MessageInbox(agent_id=self.id)).messages

    def acknowledge(self, message_id: str) -> None:
        """Acknowledge a message."""
        self.client.call(MessageAck(message_id=message_id, agent_id=self.id))

    def await_message(self, wanted: Callable[[Message], bool], what: str) -> None:
        """Wait for a message and acknowledge it."""
        message = self.client.until(lambda: next(filter(wanted, self.inbox()), None), what)
        self.acknowledge(message.id)

    def lock(self, file: str, purpose: str = "edit") -> Lock:
        """Lock a file, waiting for its holder."""
        return self.client.call(
            LockAcquire(
                file=file,
                agent_id=self.id,
                mission_id=self.mission_id,
                purpose=purpose,
                wait_ms=int(PATIENCE_S * 1000),
            )
        )

    def unlock(self, lock_id: str) -> None:
        """Release a lock."""
        self.client.call(LockRelease(lock_id=lock_id, agent_id=self.id))

    def edit(self, file: str, text: str) -> None:
        """Write a file and report it; the caller holds the lock."""
        (self.project / file).write_text(text)
        self._report("file_modified", file=file)

    def test(self, piece: Module) -> bool:
        """Run the module's tests and report the result."""
        ran = subprocess.run(
            [sys.executable, "-m", "unittest", "-q", piece.test_module],
            cwd=self.project,
            capture_output=True,
            check=False,
        )
        passed = ran.returncode == 0
        command = f"python -m unittest {piece.test_module}"
        self._report("command_finished", command=command, result="PASS" if passed else "FAIL")
        return passed

    def _report(self, kind: str, **data: str) -> None:
        self.client.call(
            EventAppend(type=kind, mission_id=self.mission_id, agent_id=self.id, data=data)
        )

    def commit(self, piece: Module) -> str:
        """Commit one module and return the commit; a lock guards the index that agents share."""
        lock = self.lock(INDEX, "commit")
        self._git("add", piece.file)
        self._git("commit", "--quiet", "-m", piece.title)
        commit = self._git("rev-parse", "--short", "HEAD")
        self.unlock(lock.id)
        return commit

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.project,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def start(self, sortie: Sortie) -> Module:
        """Start a sortie and return the module to write."""
        self.client.call(SortieStart(sortie_id=sortie.id, agent_id=self.id))
        return piece_of(sortie.files[0])

    def finish(self, sortie: Sortie, lock: Lock, code: str) -> None:
        """Write a module under its lock, test it, commit it, complete its sortie."""
        piece = piece_of(sortie.files[0])
        self.edit(piece.file, code)
        if not self.test(piece):
            raise SystemExit(f"{self.id}: the tests of {piece.file} fail")
        commit = self.commit(piece)
        self.unlock(lock.id)
        self.client.call(
            SortieComplete(sortie_id=sortie.id, agent_id=self.id, result=f"commit {commit}")
        )

    def do(self, sortie: Sortie) -> None:
        """Do a whole sortie."""
        piece = self.start(sortie)
        self.finish(sortie, self.lock(piece.file), piece.code)


WAKES = ("message_sent", "sortie_completed")


def dispatch(client: EventFollower, agent_id: str) -> None:
    """Plan the mission, hand its sorties out, answer questions, close it when all is done."""
    mission = client.call(
        MissionCreate(
            title=project.TITLE,
            project_dir=str(Path.cwd()),
            sorties=[NewSortie(title=each.title, files=[each.file]) for each in project.PIECES],
        )
    )
    me = Worker(client, agent_id, "dispatch", mission.id)
    for sortie in client.call(SortieList(mission_id=mission.id)).sorties:
        agent = project.piece_of(sortie.files[0]).agent
        client.call(SortieAssign(sortie_id=sortie.id, agent_id=agent))
    for agent in (FIRST, SECOND):
        me.write(agent, ORDERS)
    client.call(MissionStart(mission_id=mission.id))
    client.until(lambda: _all_done(me), "for all sorties to be completed")
    client.call(MissionComplete(mission_id=mission.id))
    me.leave()


def _all_done(me: Worker) -> bool | None:
    for message in me.inbox():
        if message.subject == QUESTION:
            me.write(message.sender, f"Re: {message.subject}", RULING)
            me.write(FIRST, GO_AHEAD)
        me.acknowledge(message.id)
    mission = me.client.call(MissionGet(mission_id=me.mission_id))
    return True if mission.completed_sorties == mission.total_sorties else None


def specialist(client: EventFollower, agent_id: str, mission_id: str) -> None:
    """Work through the sorties that the dispatch assigned."""
    me = Worker(client, agent_id, "specialist", mission_id)
    me.await_message(lambda message: message.subject == ORDERS, "for orders")
    mine = client.call(SortieList(mission_id=mission_id, assigned_to=agent_id))
    for sortie in mine.sorties:
        name = project.piece_of(sortie.files[0]).name
        if name == project.HALF_DONE:
            _begin_and_think(me, sortie)
        if name == project.NEEDS_WORDS:
            me.await_message(lambda message: message.subject == GO_AHEAD, "for words.py")
        if name == project.NEEDS_ALL:
            _wait_for_readability(me, sortie)
        me.do(sortie)
    me.leave()


def _begin_and_think(me: Worker, sortie: Sortie) -> None:
    """Get halfway, ask how to continue, and wait: here the demo kills this process."""
    piece = me.start(sortie)
    me.lock(piece.file)
    me.edit(piece.file, project.half(piece))
    me.test(piece)
    notes = "The vowel groups are counted, the silent e is open"
    me.client.call(SortieProgress(sortie_id=sortie.id, percent=50, notes=notes, agent_id=me.id))
    me.client.call(
        AgentNote(
            agent_id=me.id,
            last_action=f"Wrote the first half of {piece.file}",
            next_steps=[f"Finish {piece.file} as {DISPATCH} rules about the silent e"],
        )
    )
    me.write(DISPATCH, QUESTION)
    # Nothing ever comes on stdin. It ends with the demo, so that no process is left behind.
    sys.stdin.read()
    raise SystemExit(f"{me.id}: was to be killed, but the demo ended first")


def _wait_for_readability(me: Worker, sortie: Sortie) -> None:
    me.start(sortie)
    me.client.call(
        SortieBlock(sortie_id=sortie.id, reason=f"readability.py of {SECOND} is missing")
    )
    me.write(SECOND, WAITING, "report.py calls reading_ease(). Write to me when it works.")
    me.await_message(lambda message: message.subject == f"Re: {WAITING}", "for readability.py")
    me.client.call(SortieUnblock(sortie_id=sortie.id, agent_id=me.id))


def successor(client: EventFollower, agent_id: str) -> None:
    """Continue a killed agent's work with the briefing from stdin."""
    facts = read(sys.stdin.read())
    me = Worker(client, agent_id, "specialist", facts.mission_id)
    mine = client.call(SortieList(mission_id=me.mission_id, assigned_to=me.id))
    for sortie in mine.sorties:
        if sortie.status == "completed":
            continue
        if sortie.files[0] in facts.changed:
            _finish_half(me, sortie, facts)
        else:
            me.do(sortie)
    for message in me.inbox():
        if message.subject == WAITING:
            me.write(message.sender, f"Re: {message.subject}", "reading_ease() works.")
        me.acknowledge(message.id)
    me.leave()


def _finish_half(me: Worker, sortie: Sortie, facts: PromptFacts) -> None:
    """Write the missing part of a half-written file, under the lock that came with the work."""
    piece = project.piece_of(sortie.files[0])
    path = me.project / piece.file
    held = LockList(held_by=me.id, file=str(path))
    locks = me.client.call(held).locks
    if not locks:
        raise SystemExit(f"{me.id}: the lock on {piece.file} did not come with the work")
    written = path.read_text()
    me.start(sortie)
    lock = me.client.call(held).locks[0]
    me.finish(sortie, lock, written + project.rest(piece, written, facts.mail))


PROGRAMS = {"dispatch": dispatch, "specialist": specialist, "successor": successor}


def main(arguments: Sequence[str]) -> int:
    """Run one agent until its work is done."""
    program, agent_id, *rest = arguments
    with EventFollower(paths.socket_path()) as client:
        client.follow(WAKES)
        PROGRAMS[program](client, agent_id, *rest)  # type: ignore[operator]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
