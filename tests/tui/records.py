"""What a daemon might have told, in short."""

from typing import Any

from fleetctl.client.models import Record, decode, encode
from fleetctl.tui.state import WatchState
from fleetctl.tui.visible import View

NOON = 1_767_614_400_000  # 2026-01-05T12:00:00Z
MINUTE = 60_000


def at(ms: int = NOON) -> str:
    from fleetd.protocol.timestamps import iso

    return iso(ms)


def record(**fields: Any) -> Any:
    """Return a record as it comes from the socket."""
    return decode(encode(Record(fields)))


def mission(number: int, title: str = "", **fields: Any) -> Any:
    told = {
        "id": f"msn-{number:08x}",
        "title": title or f"Mission {number}",
        "status": "in_progress",
        "progress_percent": 50,
        "total_sorties": 4,
        "completed_sorties": 2,
        "project_dir": "/work",
        "origin": "person",
        "closed_reason": None,
        "merged_into": None,
    }
    return record(**told | fields)


def line(number: int, title: str = "", **fields: Any) -> Any:
    told = {
        "mission_id": f"msn-{number:08x}",
        "title": title or f"Mission {number}",
        "progress_percent": 50,
        "completed_sorties": 2,
        "total_sorties": 4,
        "last_activity_at": at(),
        "silence_ms": 0,
        "agents": 1,
        "locks": 1,
        "automatic": False,
        "needs_permission": 0,
    }
    return record(**told | fields)


def candidate(number: int, title: str = "", **fields: Any) -> Any:
    told = {
        "mission_id": f"msn-{number:08x}",
        "mission_title": title or f"Mission {number}",
        "last_activity_at": at(),
        "inactivity_duration_ms": 6 * MINUTE,
        "checkpoint_id": "chk-11111111",
        "checkpoint_progress": 50,
        "agent_id": None,
        "reason": "silent",
        "lost_agents": [],
        "project_dir": "/srv/app",
    }
    return record(**told | fields)


def status(
    *lines: Any,
    candidates: tuple[Any, ...] = (),
    recoveries: tuple[Any, ...] = (),
    machines: tuple[Any, ...] = (),
) -> Any:
    return record(
        machines=list(machines),
        missions=list(lines),
        candidates=list(candidates),
        recoveries=list(recoveries),
        counts={"locks": 1, "messages": 2},
    )


def agent(name: str, **fields: Any) -> Any:
    told = {
        "id": name,
        "role": "specialist",
        "harness": "claude",
        "status": "active",
        "mission_id": "msn-00000001",
        "last_seen_at": at(),
        "needs": None,
        "needs_since": None,
    }
    return record(**told | fields)


def lock(file: str, left_ms: int = 5 * MINUTE, **fields: Any) -> Any:
    told = {
        "id": f"lck-{file}",
        "file": file,
        "held_by": "alice",
        "mission_id": "msn-00000001",
        "acquired_at": at(),
        "timeout_ms": left_ms,
        "expires_at": at(NOON + left_ms),
    }
    return record(**told | fields)


def letter(number: int, *states: str, **fields: Any) -> Any:
    told = {
        "id": f"msg-{number:08x}",
        "mission_id": "msn-00000001",
        "from": "alice",
        "to": [f"reader-{n}" for n in range(len(states))],
        "subject": f"Letter {number}",
        "sent_at": at(),
        "deliveries": [{"agent_id": f"reader-{n}", "status": s} for n, s in enumerate(states)],
    }
    return record(**told | fields)


def event(seq: int, kind: str = "sortie_started", **fields: Any) -> Any:
    told = {
        "seq": seq,
        "type": kind,
        "timestamp": at(),
        "mission_id": "msn-00000001",
        "agent_id": "alice",
        "data": {"title": f"Piece {seq}"},
    }
    return record(**told | fields)


def shown_at(ms: int = NOON, tick_ms: int = 0, mission_id: str | None = "msn-00000001") -> View:
    return View(mission_id=mission_id, now_ms=ms, tick_ms=tick_ms)


def state_of(*missions: Any, told: Any = None) -> WatchState:
    state = WatchState()
    state.connected("epoch-1", 0)
    state.take("missions", list(missions), None, 0)
    if told is not None:
        state.take("status", told, None, 0)
    return state


def sortie(number: int = 1, **fields: object) -> object:
    told = {
        "id": f"srt-{number:08x}",
        "title": f"Piece {number}",
        "status": "in_progress",
        "progress": 30,
        "progress_notes": "half of it",
        "blocked_reason": None,
        "assigned_to": "alice",
    }
    return record(**told | fields)


def checkpoint(**fields: object) -> object:
    told = {
        "id": "chk-11111111",
        "timestamp": "2026-01-05T11:57:00.000Z",
        "trigger": "manual",
        "trigger_details": "Before the storm",
        "progress_percent": 50,
        "sortie_count": 2,
        "lock_count": 1,
        "undo": False,
    }
    return record(**told | fields)
