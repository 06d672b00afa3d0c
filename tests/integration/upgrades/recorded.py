"""Everything that a daemon's API tells of its records, as plain data; of any version."""

from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]
KINDS = (
    *("missions", "sorties", "agents", "locks", "messages", "recoveries"),
    *("checkpoints", "snapshots", "events", "cursors", "running", "notes"),
    "budgets",
)


def of(call: Call) -> dict[str, Any]:
    """Return records by their kind and then by their id.

    ``call`` returns an empty object for a method that the daemon does not know.
    """
    missions = call("mission.list", limit=500).get("missions", [])
    checkpoints = call("checkpoint.list", limit=500).get("checkpoints", [])
    snapshots = call("snapshot.list", limit=500).get("snapshots", [])
    sorties = [
        sortie
        for mission in missions
        for sortie in call("sortie.list", mission_id=mission["id"])["sorties"]
    ]
    return {
        "missions": _by_id(missions),
        "sorties": _by_id(sorties),
        "agents": _by_id(call("agent.list")["agents"]),
        "locks": _by_id(call("lock.list", active=False)["locks"]),
        "messages": _by_id(call("message.list")["messages"]),
        "recoveries": _by_id(call("recovery.list").get("recoveries", [])),
        "checkpoints": {
            each["id"]: call("checkpoint.get", checkpoint_id=each["id"]) for each in checkpoints
        },
        "snapshots": {
            each["snapshot_id"]: call("snapshot.get", snapshot_id=each["snapshot_id"])
            for each in snapshots
        },
        "events": {str(each["seq"]): each for each in _events(call)},
        "cursors": {
            mission["id"]: call("cursor.get", consumer="reader", stream=f"mission:{mission['id']}")
            for mission in missions
        },
        "running": {
            work["id"]: work
            for agent in call("attention.list").get("agents", [])
            for work in agent["running"]
        },
        "notes": _by_id(call("note.list", withdrawn=True).get("notes", [])),
        "budgets": {each["mission_id"]: each for each in call("usage.budgets").get("budgets", [])},
    }


def _by_id(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["id"]: each for each in records}


def _events(call: Call) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := call("event.list", since=found[-1]["seq"] if found else 0, limit=200)["events"]:
        found += page
    return found
