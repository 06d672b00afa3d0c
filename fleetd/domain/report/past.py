"""The records of a report as they were at a moment, in place of the present ones."""

from typing import Any

from msgspec.structs import replace

from ...protocol.display import path
from ...protocol.records import Agent, CheckpointSummary, Mission, Note, Recovery
from ...protocol.requests.report import Report, ReportOpen, ReportSortie
from ...protocol.types import OPEN_MISSION
from ..checkpoints.derived_context import plan_steps
from ..checkpoints.moments import Moment, Plan, plan_at, refuse_unknown_state
from ..checkpoints.narrative import obstacle, titles_for
from ..core.context import Context
from ..core.ids import find
from ..core.tx import Row, Tx
from ..timeline.fleet import Past, is_known

# The fields of a mission that a report shows as they were; the rest does not change.
_OF_PLAN = ("title", "description", "status", "priority", "project_dir", "started_at", "briefing")
SORTIES, LOCKS, CONFLICTS, LINES = 1_000, 50, 20, 50


def turn_back(
    tx: Tx,
    ctx: Context,
    report: Report,
    moment: Moment,
    mission_id: str | None,
    agent_id: str | None,
) -> Report:
    """Return a report whose events end at a moment with the records of that moment.

    If the history of agents begins after the moment, their present records stay. Raises
    InvalidState if the state of the mission is unknown.
    """
    if mission_id is not None:
        refuse_unknown_state(tx, find(tx, "mission", mission_id), moment)
    past = Past(tx, ctx, moment) if is_known(tx, moment) else None
    plans = {each.id: plan_at(tx, each.id, moment) for each in report.missions}
    missions = [_mission(each, plans[each.id], moment) for each in report.missions]
    planned = [
        sortie
        for each in report.missions
        for sortie in _planned(tx, each.id, plans[each.id])
        if agent_id in (None, sortie.assigned_to)
    ]
    agent = _agent(past, report.agent)
    return replace(
        report,
        agent=agent,
        mission=next((each for each in missions if each.id == mission_id), None),
        missions=missions,
        planned=planned[:SORTIES],
        omitted=replace(report.omitted, planned=len(planned[SORTIES:])),
        agents=[replace(each, agent=_agent(past, each.agent)) for each in report.agents],
        decided=[_note(each, moment) for each in report.decided],
        left_open=_left_open(tx, past, plans, mission_id, agent),
        recoveries=[_recovery(each, moment) for each in report.recoveries],
        checkpoints=[_checkpoint(each, moment) for each in report.checkpoints],
    )


def _agent(past: Past | None, agent: Agent | None) -> Agent | None:
    if past is None or agent is None:
        return agent
    return past.agent(agent.id) or agent


def _since(at: str | None, moment: Moment) -> bool:
    """Whether something happened after the moment."""
    return at is not None and at > moment.time


def _mission(mission: Mission, plan: Plan | None, moment: Moment) -> Mission:
    """Return a mission as it was; unknown fields keep their present values."""
    known: dict[str, Any] = {}
    if plan is not None:
        known = {name: plan.mission[name] for name in _OF_PLAN if name in plan.mission}
        known |= {
            "total_sorties": len(plan.sorties),
            "completed_sorties": plan.completed,
            "progress_percent": plan.progress_percent,
        }
        known["origin"] = "session" if plan.mission.get("automatic") else "person"
        if known.get("status") in OPEN_MISSION:
            known |= {"completed_at": None, "closed_reason": None, "merged_into": None}
    for name in ("updated_at", "last_activity_at"):
        if _since(getattr(mission, name), moment):
            known[name] = moment.time
    return replace(mission, **known)


def _planned(tx: Tx, mission_id: str, plan: Plan | None) -> list[ReportSortie]:
    if plan is None:
        return []
    authors = tx.all("SELECT id, author FROM sorties WHERE mission_id = :id", id=mission_id)
    author = {row["id"]: row["author"] for row in authors}
    fields = set(ReportSortie.__struct_fields__) - {"mission_id", "author"}
    return [
        ReportSortie(
            mission_id=mission_id,
            author=author.get(sortie.id),
            **{name: getattr(sortie, name) for name in fields},
        )
        for sortie in plan.sorties
    ]


def _note(note: Note, moment: Moment) -> Note:
    changes: dict[str, None] = {}
    if _since(note.withdrawn_at, moment):
        changes = dict.fromkeys(("withdrawn_at", "withdrawn_by", "withdrawn_reason"))
    if _since(note.pinned_at, moment):
        changes["pinned_at"] = None
    return replace(note, **changes)


def _recovery(recovery: Recovery, moment: Moment) -> Recovery:
    if _since(recovery.briefed_at, moment):
        return replace(recovery, state="pending", briefed_at=None, resumed_at=None)
    if _since(recovery.resumed_at, moment):
        return replace(recovery, state="briefed", resumed_at=None)
    return recovery


def _checkpoint(checkpoint: CheckpointSummary, moment: Moment) -> CheckpointSummary:
    if _since(checkpoint.consumed_at, moment):
        return replace(checkpoint, consumed_at=None)
    return checkpoint


def _left_open(
    tx: Tx,
    past: Past | None,
    plans: dict[str, Plan | None],
    mission_id: str | None,
    agent: Agent | None,
) -> ReportOpen:
    """Return the open part of the plan, and the locks and conflicts of that moment."""
    mission_id = mission_id or (agent.mission_id if agent else None)
    plan = plans.get(mission_id or "")
    if mission_id is None or plan is None or plan.mission["status"] not in OPEN_MISSION:
        return ReportOpen()
    agent_id = agent.id if agent else None
    own = [s for s in plan.sorties if agent_id in (None, s.assigned_to)]
    row: Row = find(tx, "mission", mission_id)
    titles = titles_for(tx, {**row, "title": plan.mission["title"]}, agent_id)
    blocked = (sortie for sortie in own if sortie.status == "blocked")
    open_ones = ReportOpen(
        next_steps=plan_steps(own, plan.sorties, titles)[:LINES],
        blockers=[obstacle(sortie, titles.of(sortie)) for sortie in blocked][:LINES],
    )
    if past is None:
        return open_ones
    locks = [
        lock
        for lock in past.locks()
        if lock.mission_id == mission_id and agent_id in (None, lock.held_by)
    ]
    conflicts = past.conflicts({agent_id} if agent_id else past.agents_of(mission_id))
    return replace(
        open_ones,
        locks=locks[:LOCKS],
        conflicts=[path(each.file) for each in conflicts[:CONFLICTS]],
    )
