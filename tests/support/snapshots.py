"""Snapshots of a run: record them, and summarize each in one line."""

from typing import Any

from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.snapshot import DeclaredOutcome, SnapshotRecord
from fleetd.protocol.requests.sortie import SortieStart
from fleetd.protocol.snapshots import CommandOutcome, Snapshot, SnapshotDocument
from tests.support.fleet import MINUTE, Fleet

RUN = "build-42"


def line(snapshot: SnapshotDocument, *, timed: bool = True) -> str:
    """Return source and status, the step by its position, the pressure, and the outcomes.

    A duration that no client reports is measured; without ``timed`` the line omits it.
    """
    step = snapshot.step_state
    place = f"{step.step_ordinal} {step.step_status}" if step.step_status else "no step"
    said = [
        f"{snapshot.source} {snapshot.status}",
        place,
        snapshot.context_digest.window_pressure,
        *(_outcome(each, timed) for each in snapshot.command_outcomes),
    ]
    return " | ".join(said)


def _outcome(told: CommandOutcome, timed: bool) -> str:
    """Return an outcome as its name, its result and, if known, its duration."""
    lasted = f" {told.duration_ms} ms" if timed and told.duration_ms else ""
    return f"{told.name} {told.result}{lasted}"


async def record(fleet: Fleet, run_id: str | None = RUN, **said: Any) -> Snapshot:
    """Record a snapshot as a client does, a minute after the previous call."""
    fleet.clock.pass_by(MINUTE)
    return await at_once(fleet, run_id, **said)


async def at_once(fleet: Fleet, run_id: str | None = RUN, **said: Any) -> Snapshot:
    return await fleet.do(SnapshotRecord(run_id, **said))


def outcome(name: str, result: Any = "PASS", **more: Any) -> DeclaredOutcome:
    return DeclaredOutcome(**({"kind": "shell", "name": name, "result": result} | more))


async def told(fleet: Fleet, agent: str, kind: str, **data: Any) -> None:
    await fleet.do(EventAppend(kind, agent_id=agent, data=data))


async def working(fleet: Fleet, sorties: int = 3, agent: str = "spec-1") -> str:
    """Give an agent all sorties of a mission as its plan, with the first in progress."""
    mission = await fleet.mission(sorties)
    await fleet.agents(mission, agent)
    for sortie in await fleet.sorties(mission):
        fleet.sql("UPDATE sorties SET assigned_to = :a WHERE id = :id", a=agent, id=sortie.id)
    await fleet.do(SortieStart((await fleet.sorties(mission))[0].id, agent))
    return mission.id
