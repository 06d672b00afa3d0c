"""The fleet of ``watch_fleet`` with sessions of agent CLIs; must not draw it.

It adds what the page in the browser also shows: needs of a person, prompts, commands, compactions
with their briefings, files that two agents changed, a wait for a lock, notes, tokens.
"""

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.processes import Daemon
from tools.watch_fleet import Story

MODEL = "claude-sonnet-4-5"
SESSIONS = (
    "4be1a7c2-0d5f-4a51-9c1e-6a1e5f0b7d11",
    "9d03f6e8-7c1b-4f2e-8f0a-1c2d3e4f5a6b",
    "c27a9b40-5e6d-4c3b-a2f1-08d7e6c5b4a3",
)
NOTES = (
    ("constraint", "Old passwords keep working until the end of March", "The contract says so"),
    ("decision", "A passkey replaces the password and does not stand beside it", "One way to fail"),
    ("ruled-out", "A library for WebAuthn in the browser", "The platform's own calls are enough"),
    ("finding", "Safari asks twice if the relying party is a subdomain", None),
)


class WebStory(Story):
    """Sends the events of the story to the daemon, each at its minute."""

    def __init__(self, daemon: Daemon, behind: Path, project: Path) -> None:
        super().__init__(daemon, behind, project)
        # File names are relative to the root of the repository.
        subprocess.run(("git", "init", "--quiet", str(project)), check=True)  # noqa: S603, S607
        self._deliveries = 0
        self._minutes: float = 0

    def _at(self, minutes: float) -> None:
        self._minutes = minutes
        super()._at(minutes)

    def _hook(self, session: str, event: str, **fields: Any) -> None:
        """Deliver an event of a session of Claude Code."""
        self._deliveries += 1
        payload: Mapping[str, Any] = {
            "session_id": session,
            "cwd": str(self._project),
            "transcript_path": str(self._transcript(session)),
            "hook_event_name": event,
        }
        self._do(
            "hook.deliver",
            delivery_id=f"story-{self._deliveries:08}",
            harness="claude",
            payload=json.dumps({**payload, **fields}),
        )

    def _transcript(self, session: str) -> Path:
        return self._behind.parent / f"{session}.jsonl"

    def _requests(self, session: str, first: int, count: int) -> None:
        """Add requests to a model to the transcript of a session."""
        at = datetime.now(UTC) - timedelta(minutes=self._minutes)
        lines = [
            {
                "type": "assistant",
                "uuid": f"u-{number}",
                "requestId": f"req_{number}",
                "timestamp": (at + timedelta(milliseconds=number)).isoformat(),
                "message": {
                    "id": f"msg_{number}",
                    "model": MODEL,
                    "usage": {
                        "input_tokens": 900 + 41 * number,
                        "output_tokens": 320 + 17 * number,
                        "cache_read_input_tokens": 31_000 + 2_300 * (number - first),
                        "cache_creation_input_tokens": 2_400,
                    },
                },
            }
            for number in range(first, first + count)
        ]
        with self._transcript(session).open("ab") as file:
            file.writelines(json.dumps(each).encode() + b"\n" for each in lines)

    def _edit(self, session: str, path: str) -> None:
        file = str(self._project / path)
        given = {"file_path": file, "old_string": "a", "new_string": "b"}
        self._hook(session, "PostToolUse", tool_name="Edit", tool_input=given, tool_response={})

    def _run(self, session: str, command: str, error: str | None = None) -> None:
        given = {"command": command}
        call = f"toolu_{self._deliveries}"
        about = {"tool_name": "Bash", "tool_input": given, "tool_use_id": call}
        self._hook(session, "PreToolUse", **about)
        if error is None:
            self._hook(session, "PostToolUse", **about, tool_response={"stdout": "ok"})
        else:
            self._hook(session, "PostToolUseFailure", **about, error=error, is_interrupt=False)

    def _compacted(self, session: str) -> None:
        self._hook(session, "PreCompact", trigger="auto", custom_instructions=None)
        self._hook(session, "PostCompact", trigger="auto", compact_summary="…")
        self._hook(session, "SessionStart", source="compact", model=MODEL)

    def _begin(self, session: str, prompt: str) -> None:
        self._transcript(session).touch()
        self._hook(session, "SessionStart", source="startup", model=MODEL)
        self._hook(session, "UserPromptSubmit", prompt=prompt)

    def _first_hour(self, mission: str, pieces: list[str]) -> None:
        super()._first_hour(mission, pieces)
        for kind, text, because in NOTES:
            about = {"because": because} if because else {}
            self._do("note.add", mission_id=mission, kind=kind, text=text, agent_id="ada", **about)
        for later, earlier in ((4, [1, 2]), (5, [2]), (6, [3]), (7, [4, 5, 6])):
            before = [pieces[place] for place in earlier]
            self._do("sortie.update", sortie_id=pieces[later], depends_on=before)
        self._do("usage.budget", mission_id=mission, tokens=5_000_000)

    def _second_hour(self, pieces: list[str]) -> None:
        self._sessions(1)
        super()._second_hour(pieces)
        self._sessions(2)

    def _sessions(self, part: int) -> None:
        form, api, _ = SESSIONS
        if part == 1:
            self._at(30)
            self._begin(form, "The form for a new passkey should say which device it is for")
            self._begin(api, "Add an endpoint that lists the passkeys of a user, with tests")
            for n, path in enumerate(("src/pages/passkey.tsx", "src/pages/settings.tsx")):
                self._edit(form, path)
                self._run(form, f"npm test -- passkey --run {n}")
            self._requests(form, 0, 14)
            self._requests(api, 100, 9)
            return
        self._at(20)
        self._edit(api, "src/auth/list.ts")
        self._run(api, "npm test -- list", "Exit code 1: 2 tests failed")
        self._requests(api, 120, 12)
        self._compacted(form)
        self._at(17)
        self._run(api, "npm test -- list")
        self._edit(form, "src/auth/list.ts")
        self._requests(form, 40, 8)
        self._at(15)
        self._compacted(api)
        self._run(api, "npm run lint")

    def _last_minutes(self, mission: str, pieces: list[str]) -> None:
        super()._last_minutes(mission, pieces)
        form, api, other = SESSIONS
        self._at(0.35)
        self._begin(other, "Why does the upload test fail once in twenty runs?")
        self._run(other, "pytest tests/upload.py -x --count 20")
        self._edit(api, "src/auth/list.ts")
        self._edit(form, "src/auth/list.ts")
        self._at(0.3)
        self._do(
            "error.report", agent_id="chie", mission_id=mission, kind="exception",
            name="psql", message="could not connect to server",
        )  # fmt: skip
        command = {"command": "rm -rf build && npm run build", "description": "Build again"}
        self._hook(form, "PreToolUse", tool_name="Bash", tool_input=command, tool_use_id="toolu_p")
        self._hook(form, "PermissionRequest", tool_name="Bash", tool_input=command)
        self._at(0.2)
        question = {"questions": [{"question": "Should a deleted passkey stay in the audit log?"}]}
        about = {"tool_name": "AskUserQuestion", "tool_input": question, "tool_use_id": "toolu_q"}
        self._hook(api, "PreToolUse", **about)
        self._hook(api, "PermissionRequest", **about)
        self._at(0.1)
        running = {"command": "pytest tests/upload.py --count 200"}
        self._hook(other, "PreToolUse", tool_name="Bash", tool_input=running, tool_use_id="toolu_r")
