"""What every agent of the demo can do: talk to fleetd, edit, test and commit; has no plan."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fleetd.protocol.records import Lock, Message, Sortie
from fleetd.protocol.requests.agent import AgentDeregister, AgentRegister
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire, LockRelease
from fleetd.protocol.requests.message import MessageAck, MessageInbox, MessageSend
from fleetd.protocol.requests.sortie import SortieComplete, SortieList, SortieStart
from fleetd.protocol.types import Role

from .following import PATIENCE_S, Follower
from .project import Piece, piece_of

INDEX = ".git/index"


class Worker:
    """One agent, at work in the current directory."""

    def __init__(self, client: Follower, agent_id: str, role: Role, mission_id: str) -> None:
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
        """Say good-bye."""
        self.client.call(AgentDeregister(agent_id=self.id, reason="done"))

    def write(self, to: str, subject: str, body: str | None = None) -> None:
        """Send a letter."""
        self.client.call(
            MessageSend(
                sender=self.id, to=[to], subject=subject, body=body, mission_id=self.mission_id
            )
        )

    def letters(self) -> list[Message]:
        """Return the letters that wait for an acknowledgement."""
        return self.client.call(MessageInbox(agent_id=self.id)).messages

    def acknowledge(self, message_id: str) -> None:
        """Say that a letter is dealt with."""
        self.client.call(MessageAck(message_id=message_id, agent_id=self.id))

    def await_letter(self, wanted: Callable[[Message], bool], what: str) -> None:
        """Wait for a letter and acknowledge it."""
        letter = self.client.until(lambda: next(filter(wanted, self.letters()), None), what)
        self.acknowledge(letter.id)

    def sorties(self) -> list[Sortie]:
        """Return the sorties of this agent, in their order."""
        page = self.client.call(SortieList(mission_id=self.mission_id, assigned_to=self.id))
        return page.sorties

    def lock(self, file: str, purpose: str = "edit") -> Lock:
        """Lock a file, waiting for whoever has it."""
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
        """Give a lock back."""
        self.client.call(LockRelease(lock_id=lock_id, agent_id=self.id))

    def edit(self, file: str, text: str) -> None:
        """Write a file and say so; the caller holds the lock."""
        (self.project / file).write_text(text)
        self._report("file_modified", file=file)

    def test(self, piece: Piece) -> bool:
        """Run the module's tests and report how they went."""
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

    def commit(self, piece: Piece) -> str:
        """Commit one module and return the commit; git has one index for all agents."""
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

    def start(self, sortie: Sortie) -> Piece:
        """Begin a sortie and return what is to be written."""
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
        """Do a sortie from its beginning to its end."""
        piece = self.start(sortie)
        self.finish(sortie, self.lock(piece.file), piece.code)
