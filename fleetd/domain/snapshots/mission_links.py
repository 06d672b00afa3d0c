"""Which missions a snapshot holds something of; it goes with each of them when they are forgotten.

An agent that goes from one mission to the next takes its last commands, its locks and the step that
it was at along. Must not decide what a snapshot says.
"""

from collections.abc import Iterable

from ...protocol.snapshots import Snapshot, StepState
from ..core.event_log import position_before
from ..core.sql import in_sql
from ..core.tx import Tx
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL
from .builder import Known, Trigger, span_of
from .outcomes import LAST_EVENTS, MOST_EVENTS
from .resume_hints import FAILED_FIRST

_CALLS = in_sql(BEGINS_A_CALL + ENDS_A_CALL)


def tie(tx: Tx, snapshot_id: str, missions: Iterable[str]) -> None:
    """Note missions of which a snapshot holds something."""
    for mission_id in sorted(missions):
        tx.run(
            "INSERT INTO snapshot_missions (mission_id, snapshot_id) VALUES (:mission, :snapshot)"
            " ON CONFLICT (mission_id, snapshot_id) DO NOTHING",
            mission=mission_id,
            snapshot=snapshot_id,
        )


def missions_of(tx: Tx, known: Known, trigger: Trigger, state: StepState) -> set[str]:
    """Return the missions of what a snapshot will say: calls, what failed last, locks, the step."""
    span = span_of(tx, known)
    mine = "SELECT mission_id FROM events WHERE agent_id = :agent"
    newest = "ORDER BY seq DESC LIMIT"
    rows = tx.all(
        "SELECT mission_id FROM agents WHERE id = :agent"
        " UNION SELECT mission_id FROM sorties WHERE id = :step"
        " UNION SELECT mission_id FROM locks WHERE held_by = :agent AND status = 'active'"
        f" UNION SELECT mission_id FROM ({mine} AND type IN {_CALLS} AND seq > :since"
        f" AND timestamp >= :begun {newest} :most) AS new_calls"
        f" UNION SELECT mission_id FROM ({mine} AND type IN {_CALLS} AND seq > :last {newest} 1)"
        " AS last_call"
        f" UNION SELECT mission_id FROM ({mine} AND activity = 1 {newest} 1) AS last_activity",
        agent=known.agent_id,
        step=state.step_id,
        since=span.since if span else 0,
        begun=span.begun_at if span else "",
        last=position_before(tx, known.agent_id, LAST_EVENTS),
        most=MOST_EVENTS if trigger.outcomes is None else 0,
    )
    found = {row["mission_id"] for row in rows if row["mission_id"]}
    if known.newest is not None and _repeats(state, known.newest):
        found |= _carried(tx, known.newest)
    return found


def _repeats(state: StepState, newest: Snapshot) -> bool:
    """Whether a snapshot says again what the one before says: its step, or what failed in it."""
    if state == newest.step_state:
        return _says_anything(state)
    failed = [each.result for each in newest.command_outcomes[-1:]] == ["FAIL"]
    return failed and any(told.startswith(FAILED_FIRST) for told in state.resume_hints.next_actions)


def _says_anything(state: StepState) -> bool:
    hints, complied = state.resume_hints, state.todo_compliance
    told = (state.plan_path, state.step_id, hints.next_actions, complied.violations)
    return any(told)


def _carried(tx: Tx, newest: Snapshot) -> set[str]:
    """Return the missions of a snapshot that is repeated."""
    rows = tx.all(
        "SELECT mission_id FROM snapshot_missions WHERE snapshot_id = :id",
        id=newest.snapshot_id,
    )
    return {row["mission_id"] for row in rows}
