"""An example fleet: the last two hours of four missions; must not draw it."""

from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from tests.support.processes import Daemon

MINUTE = 60_000
SIGN_IN = (
    ("Inventory of every sign-in path", ["docs/sign-in.md"]),
    ("Registration of passkeys", ["src/auth/register.ts"]),
    ("Sessions without passwords", ["src/auth/session.ts"]),
    ("Recovery codes", ["src/auth/codes.ts"]),
    ("Settings page", ["src/pages/settings.tsx"]),
    ("Old passwords fade out", ["src/auth/legacy.ts"]),
    ("Audit log", ["src/audit/log.ts"]),
    ("Acceptance tests", ["tests/passkeys.spec.ts"]),
)
SEARCH = (
    ("Measure where the time goes", ["bench/search.py"]),
    ("Index only what changed", ["search/index.py"]),
    ("Cache of the first page", ["search/cache.py"]),
)
MANUAL = (
    ("Glossary", ["i18n/glossary.csv"]),
    ("Chapters 1 to 4", ["manual/ja/1-4.md"]),
    ("Chapters 5 to 9", ["manual/ja/5-9.md"]),
    ("Screenshots", ["manual/ja/img"]),
)


class Story:
    """Sends the events of the story to the daemon, each at its minute."""

    def __init__(self, daemon: Daemon, behind: Path, project: Path) -> None:
        self._daemon = daemon
        self._behind = behind
        self._project = project
        self._client = Fleet(daemon.socket)

    def play(self) -> None:
        """Send the whole story, and set the daemon's clock back to the present."""
        self._at(118)
        self._upload()
        self._at(104)
        sign_in, pieces = self._mission("Move sign-in to passkeys", SIGN_IN)
        self._do("mission.create", title="Upgrade to PostgreSQL 18", project_dir=str(self._project))
        self._at(96)
        manual, chapters = self._mission("Translate the manual: 日本語", MANUAL)
        self._first_hour(sign_in, pieces)
        self._translate(manual, chapters)
        self._at(31)
        search, steps = self._mission("Search answers in under 100 ms", SEARCH)
        self._second_hour(pieces)
        self._at(12)
        self._progress(chapters[1], "kei", 60, "Chapter 3 is reviewed")
        # The search for silences runs at the start, so there is no need to wait for it.
        self._again(6)
        self._search(search, steps)
        self._last_minutes(sign_in, pieces)
        self._again(0)

    def _at(self, minutes: float) -> None:
        # Atomic, because the daemon may read the file at any moment.
        new = self._behind.with_suffix(".new")
        new.write_text(str(round(minutes * MINUTE)))
        new.replace(self._behind)

    def _again(self, minutes: float) -> None:
        self._client.close()
        self._daemon.stop()
        self._at(minutes)
        self._daemon.start()
        self._client = Fleet(self._daemon.socket)

    def _do(self, method: str, **params: Any) -> Any:
        return self._client.call_raw(method, params)

    def _mission(self, title: str, sorties: Any) -> tuple[str, list[str]]:
        pieces = [{"title": name, "files": files} for name, files in sorties]
        made = self._do(
            "mission.create", title=title, project_dir=str(self._project), sorties=pieces
        )["id"]
        self._do("mission.start", mission_id=made)
        found = self._do("sortie.list", mission_id=made)["sorties"]
        return made, [each["id"] for each in found]

    def _join(self, agent: str, harness: str, mission: str, role: str = "specialist") -> None:
        place = {"mission_id": mission, "cwd": str(self._project)}
        self._do("agent.register", agent_id=agent, role=role, harness=harness, **place)

    def _start(self, sortie: str, agent: str) -> None:
        self._do("sortie.start", sortie_id=sortie, agent_id=agent)

    def _progress(self, sortie: str, agent: str, percent: int, notes: str) -> None:
        self._do("sortie.progress", sortie_id=sortie, agent_id=agent, percent=percent, notes=notes)

    def _complete(self, sortie: str) -> None:
        self._do("sortie.complete", sortie_id=sortie)

    def _lock(self, file: str, agent: str, mission: str, minutes: int = 10) -> Any:
        return self._do(
            "lock.acquire",
            file=file,
            agent_id=agent,
            mission_id=mission,
            timeout_ms=minutes * MINUTE,
        )

    def _write(self, sender: str, to: str, subject: str, body: str = "") -> None:
        self._client.call_raw(
            "message.send", {"from": sender, "to": [to], "subject": subject, "body": body or None}
        )

    def _read(self, agent: str, *, answered: bool = True) -> None:
        for letter in self._do("message.inbox", agent_id=agent)["messages"]:
            if answered:
                self._do("message.ack", message_id=letter["id"], agent_id=agent)

    def _upload(self) -> None:
        mission, (piece,) = self._mission(
            "Fix the flaky upload test", [("Find the race", ["tests/upload.py"])]
        )
        self._join("fixer", "codex", mission)
        self._start(piece, "fixer")
        self._complete(piece)
        self._do("mission.complete", mission_id=mission)
        self._do("agent.deregister", agent_id="fixer", reason="done")

    def _first_hour(self, mission: str, pieces: list[str]) -> None:
        self._at(95)
        self._join("tower", "claude", mission, "dispatch")
        for agent, harness in (("ada", "claude"), ("bruno", "codex"), ("chie", "gemini")):
            self._join(agent, harness, mission)
        self._start(pieces[0], "ada")
        self._write("tower", "bruno", "Begin with registration")
        self._read("bruno")
        self._start(pieces[1], "bruno")
        self._at(80)
        self._complete(pieces[0])
        self._at(66)
        self._complete(pieces[1])
        self._start(pieces[2], "ada")
        self._at(52)
        self._do(
            "checkpoint.create",
            mission_id=mission,
            trigger_details="Before the session store moves",
            created_by="tower",
        )

    def _translate(self, mission: str, chapters: list[str]) -> None:
        self._at(50)
        self._join("kei", "copilot", mission)
        self._start(chapters[0], "kei")
        self._at(38)
        self._complete(chapters[0])
        self._start(chapters[1], "kei")

    def _second_hour(self, pieces: list[str]) -> None:
        self._at(29)
        self._complete(pieces[2])
        self._start(pieces[3], "chie")
        self._write("chie", "tower", "How many recovery codes?")
        self._read("tower")
        self._write("tower", "chie", "Ten, shown once")
        self._read("chie")
        self._at(21)
        self._complete(pieces[3])
        self._start(pieces[4], "ada")

    def _search(self, mission: str, steps: list[str]) -> None:
        self._at(5)
        self._join("noor", "opencode", mission)
        self._join("sam", "cursor", mission)
        self._start(steps[0], "noor")
        self._at(4)
        self._complete(steps[0])
        self._start(steps[1], "noor")
        self._start(steps[2], "sam")
        self._lock("search/index.py", "noor", mission)
        self._at(3)
        self._do(
            "sortie.block", sortie_id=steps[2], reason="which pages are first?", agent_id="sam"
        )
        self._write("sam", "noor", "Which pages count as first?")

    def _last_minutes(self, mission: str, pieces: list[str]) -> None:
        self._at(2.4)
        for agent, harness in (("tower", "claude"), ("ada", "claude"), ("bruno", "codex")):
            role = "dispatch" if agent == "tower" else "specialist"
            self._join(agent, harness, mission, role)
        self._join("chie", "gemini", mission)
        self._do("agent.note", agent_id="ada", last_action="Moved the session store to tokens")
        self._start(pieces[5], "bruno")
        self._lock("src/auth/legacy.ts", "bruno", mission)
        self._lock("src/pages/settings.tsx", "ada", mission)
        self._at(1.7)
        self._progress(pieces[4], "ada", 45, "The list of keys is drawn")
        self._at(1.1)
        self._start(pieces[6], "chie")
        self._lock("src/audit/log.ts", "chie", mission)
        self._write("bruno", "tower", "May old hashes go?", "They are read by the importer only.")
        self._write("ada", "chie", "Events for a new key")
        self._read("chie", answered=False)
        self._at(0.4)
        self._progress(pieces[5], "bruno", 20, "Hashes are read, no longer written")
        self._do("event.append", type="file_modified", mission_id=mission, agent_id="chie",
                 data={"file": "src/audit/log.ts"})  # fmt: skip
