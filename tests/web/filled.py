"""A fleet in which every text that can be stored is a given one; must not look at the page."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet

_numbers = itertools.count()


@dataclass
class Filled:
    """What was made."""

    mission: str
    agents: list[str] = field(default_factory=list)
    checkpoint: str = ""


def fill(fleet: Fleet, project: Path, text: str, name: str = "ada") -> Filled:
    """Make a mission whose titles, notes, mail, paths, prompts, commands and answers are a text."""
    do = fleet.call_raw
    path = text.replace("\0", "")
    sorties = [
        {"title": text, "description": text, "files": [path]},
        {"title": f"{text} next", "files": [path]},
    ]
    made = {"title": text, "description": text, "project_dir": str(project), "sorties": sorties}
    mission = str(do("mission.create", made)["id"])
    here = {"mission_id": mission}
    do("mission.start", here)
    other = f"{name}-2"
    for agent in (name, other):
        do("agent.register", {"agent_id": agent, "role": "specialist", "cwd": str(project), **here})
    first, second = do("sortie.list", here)["sorties"]
    do("sortie.update", {"sortie_id": second["id"], "depends_on": [first["id"]]})
    do("sortie.start", {"sortie_id": first["id"], "agent_id": name})
    do(
        "sortie.progress",
        {"sortie_id": first["id"], "percent": 40, "notes": text, "agent_id": name},
    )
    do(
        "agent.note",
        {"agent_id": name, "last_action": text, "next_steps": [text], "blockers": [text]},
    )
    for kind in ("decision", "constraint"):
        note = {"kind": kind, "text": text, "because": text, "path": path, "agent_id": name, **here}
        do("note.add", note)
    found = do("note.list", here)["notes"]
    do("note.withdraw", {"note_id": found[0]["id"], "reason": text, "agent_id": name})
    message = {"from": name, "to": [other], "subject": text, "body": text, **here}
    do("message.send", message)
    lock = {"file": path, "agent_id": name, "purpose": text, **here}
    do("lock.acquire", lock)
    for agent in (name, other):
        do("event.append", _event("file_modified", agent, mission, file=str(project / "both.py")))
    do("event.append", _event("file_modified", name, mission, file=path))
    do(
        "event.append",
        _event("command_finished", name, mission, command=text, result="FAIL", error=text),
    )
    do(
        "event.append",
        _event("made_up", name, mission, text=text, nested={"text": [text]}),
    )
    checkpoint = do("checkpoint.create", {**here, "trigger_details": text})["id"]
    error = {"agent_id": name, "kind": "exception", "name": text[:200], "message": text, **here}
    do("error.report", error)
    do("sortie.block", {"sortie_id": first["id"], "reason": text, "agent_id": name})
    session = f"{next(_numbers):08}-{name}"
    for event, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": text}),
        ("Stop", {"last_assistant_message": text}),
        ("UserPromptSubmit", {"prompt": text}),
        ("PreToolUse", _bash(text)),
        ("PermissionRequest", _bash(text)),
    ):
        hook(fleet, project, session, event, **fields)
    agents = [each["agent_id"] for each in do("attention.list")["agents"]]
    return Filled(mission, agents, checkpoint)


def hook(fleet: Fleet, project: Path, session: str, event: str, **fields: Any) -> None:
    """Deliver an event of a session of Claude Code."""
    payload = {"session_id": session, "cwd": str(project), "hook_event_name": event, **fields}
    delivery = {
        "delivery_id": f"filled-{next(_numbers):08}",
        "harness": "claude",
        "payload": json.dumps(payload),
    }
    fleet.call_raw("hook.deliver", delivery)


def views(filled: Filled) -> list[str]:
    """Return the route of every view of what was made."""
    mission, agent = f"#/mission/{filled.mission}", f"#/agent/{filled.agents[0]}"
    parts = ("plan", "work", "notes", "mail", "tokens", "checkpoints", "briefing", "events")
    return [
        "#/now",
        "#/timeline",
        "#/mission",
        *(f"{mission}?part={part}" for part in parts),
        *(f"{agent}?part={part}" for part in parts if part != "checkpoints"),
        "#/search",
    ]


def _event(kind: str, agent: str, mission: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "agent_id": agent, "mission_id": mission, "data": data}


def _bash(command: str) -> dict[str, Any]:
    given = {"command": command, "description": command}
    return {"tool_name": "Bash", "tool_input": given, "tool_use_id": "toolu_1"}
