"""Play a session's hooks through a real engine, and return the briefing in the last reply.

Only the clock and the ids are simulated: they are the same in every run. The engine is behind a
``Door``, because the engine of an older revision is opened and called differently.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from .session import HOME, MAIN, Edit, Note, Session, Step, Window

# 2026-03-02T09:00:00Z, a Monday.
BEGIN_MS = 1_772_442_000_000
DAY_MS = 86_400_000
_OWNER = {"name": "Kim", "email": "kim@example.org"}


class Clock:
    """A wall clock and an uptime that only the session advances."""

    def __init__(self) -> None:
        self.ms = BEGIN_MS
        self.awake_ms = 2 * DAY_MS

    def __call__(self) -> int:
        """Return the time in ms since 1970."""
        return self.ms

    def pass_by(self, seconds: float) -> None:
        """Advance the time."""
        self.ms += round(seconds * 1_000)
        self.awake_ms += round(seconds * 1_000)


class Door(Protocol):
    """An engine, called by the names of methods."""

    methods: frozenset[str]

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Perform a request; raises what the engine raises."""


Opens = Callable[[Path, Clock, Callable[[str], str], int], AbstractAsyncContextManager[Door]]
"""Opens the engine below a directory; the last argument is the budget, in characters."""


async def briefing(session: Session, budget: int, opens: Opens) -> str:
    """Return the answer of the hook at a session's end, as the agent reads it."""
    with _directory("/tmp") as root, _directory("/dev/shm") as stored:
        clock = Clock()
        async with opens(stored, clock, _ids(), budget) as door:
            return await _Play(session, root, clock, door).run()


@contextmanager
def _directory(above: str) -> Iterator[Path]:
    """Create a directory whose name has the same length in each run: briefings contain paths."""
    wanted = above if os.access(above, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="u", dir=wanted) as name:
        yield Path(name).resolve()


def _ids() -> Callable[[str], str]:
    numbers = count(1)
    return lambda prefix: f"{prefix}-{next(numbers):012}"


class _Play:
    def __init__(self, session: Session, root: Path, clock: Clock, door: Door) -> None:
        self.session = session
        self.root = root
        self.clock = clock
        self.door = door
        self.project = root / session.project
        self.deliveries = count(1)

    async def run(self) -> str:
        self._lay_out()
        answer = ""
        for step in self.session.steps:
            self.clock.pass_by(step.after)
            answer = await self._take(step)
        return self._elsewhere(answer, str(self.root), HOME)

    def _lay_out(self) -> None:
        self.project.mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch=main")
        self._put(self.session.files)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message=Begin")

    async def _take(self, step: Step) -> str:
        window = self.session.windows[step.window]
        if step.hook is not None:
            return await self._deliver(window, step.hook)
        if step.log is not None and window.log is not None:
            self._log(window.log, step.log)
        elif step.call is not None:
            await self.door.ask(step.call, await self._filled(step.params))
        elif step.note is not None:
            await self._note(step.note)
        elif step.disk is not None:
            self._put(step.disk)
        elif step.git is not None:
            self._git(*step.git)
        return ""

    async def _deliver(self, window: Window, payload: dict[str, Any]) -> str:
        whole = json.dumps({**window.fields, **payload})
        reply = await self.door.ask(
            "hook.deliver",
            {
                "delivery_id": f"delivery-{next(self.deliveries):08}",
                "harness": window.cli,
                "payload": self._elsewhere(whole, HOME, str(self.root)),
            },
        )
        return _context(reply["stdout"])

    async def _note(self, note: Note) -> None:
        """Add a note; a revision without notes has no place for it."""
        if "note.add" not in self.door.methods:
            if found := [name for name in self.door.methods if name.startswith("note.")]:
                raise LookupError(f"no note.add among {sorted(found)}: play.py must be changed")
            return
        author = {} if note.by is None else {"agent_id": note.by}
        fields = {"kind": note.kind, "text": note.text, "because": note.because}
        mission = await self._mission(note.by or self.session.windows[MAIN].agent)
        added = await self.door.ask("note.add", {**fields, **author, "mission_id": mission})
        if note.pinned:
            await self.door.ask("note.pin", {"note_id": added["id"]})
        if note.withdrawn is not None:
            reason = {"note_id": added["id"], "reason": note.withdrawn}
            await self.door.ask("note.withdraw", {**reason, **author})

    async def _mission(self, agent_id: str) -> str:
        found = await self.door.ask("agent.get", {"agent_id": agent_id})
        return str(found["mission_id"])

    async def _filled(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with this run's paths; ``mission of AGENT`` stands for an id."""
        text = self._elsewhere(json.dumps(params), HOME, str(self.root))
        given: dict[str, Any] = json.loads(text)
        for name, value in given.items():
            if isinstance(value, str) and value.startswith("mission of "):
                given[name] = await self._mission(value.removeprefix("mission of "))
        return given

    def _log(self, name: str, lines: list[dict[str, Any]]) -> None:
        file = Path(self._elsewhere(name, HOME, str(self.root)))
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            for line in lines:
                text = json.dumps(line, separators=(",", ":"))
                log.write(self._elsewhere(text, HOME, str(self.root)) + "\n")

    def _put(self, files: Mapping[str, str | Edit | None]) -> None:
        for name, given in files.items():
            file = self.project / name
            if given is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(given, Edit):
                given = file.read_text("utf-8").replace(given.old, given.new, 1)
            file.write_text(given, "utf-8")

    def _git(self, *words: str) -> None:
        """Run Git at the session's time, with a fixed author and without the machine's settings."""
        when = f"{self.clock.ms // 1_000} +0000"
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for role in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{role}_{field.upper()}": value for field, value in _OWNER.items()}
            env[f"GIT_{role}_DATE"] = when
        place = [self._elsewhere(word, HOME, str(self.root)) for word in words]
        subprocess.run(["git", *place], cwd=self.project, env=env, check=True, capture_output=True)

    @staticmethod
    def _elsewhere(text: str, old: str, new: str) -> str:
        return text.replace(old, new)


def _context(stdout: str) -> str:
    """Return the text for the agent in a reply, for any CLI."""
    if not stdout:
        return ""
    reply = json.loads(stdout)
    inner = reply.get("hookSpecificOutput", reply)
    return str(inner.get("additionalContext") or inner.get("context") or "")
