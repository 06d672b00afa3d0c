"""Snapshots of runs: record one, coalesce its trigger with the last, list, compress old files.

The newest snapshot of a run is the one with the highest ``seq``: a clock can be stepped back, the
log cannot. When a mission is forgotten, every snapshot that contains something of it is deleted. An
agent that moves from one mission to the next takes its last commands, its locks and its step along.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ...protocol.events import SnapshotRecorded
from ...protocol.requests.snapshot import (
    SnapshotList,
    SnapshotPage,
    SnapshotRecord,
)
from ...protocol.snapshots import (
    CommandOutcome,
    Snapshot,
    SnapshotContent,
    SnapshotSummary,
    StepState,
)
from ..core.coalescing import COALESCE_MS, merged, since_last
from ..core.context import Context
from ..core.counters import tally
from ..core.event_log import emit, nth_newest_position, position
from ..core.registry import method
from ..core.soft_delete import KEPT_HERE, LIVE, find_live
from ..core.sql import Where, in_sql
from ..core.tx import LogLine, Tx, WriteBackup
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL
from ..retention.pruning import drop_surplus
from .builder import Draft, RunFacts, Trigger, build, newest_row, run_facts, uncovered_span
from .codec import from_row, to_columns
from .outcomes import LAST_EVENTS, MOST_EVENTS
from .plan_steps import FAILED_FIRST
from .runs import requested_run, run_row, session_of_run, without_snapshots

_CALLS = in_sql(BEGINS_A_CALL + ENDS_A_CALL)


def record(tx: Tx, ctx: Context, request: SnapshotRecord) -> Snapshot:
    """Record the state of a run on request."""
    run = requested_run(tx, ctx, request)
    trigger = Trigger(
        source=request.source,
        status=request.status,
        step=request.step_state,
        digest=request.context_digest,
        outcomes=request.command_outcomes or None,
        agent_id=run.agent_id,
        note=request.note,
    )
    return from_row(find_live(tx, "snapshot", take(tx, ctx, run.run_id, trigger)))


def take(tx: Tx, ctx: Context, run_id: str, trigger: Trigger) -> str:
    """Take a snapshot of a run and return its id; its file is written after COMMIT.

    Within 3 s of the last trigger, with nothing material changed, this one joins the newest
    snapshot, and the id of that one is returned.
    """
    known = run_facts(tx, run_id, trigger)
    draft = build(tx, ctx, known, trigger)
    if known.newest is not None and _joins(ctx, known, draft, trigger):
        return _join(tx, ctx, known, known.newest, trigger)
    snapshot_id = _insert(tx, ctx, known, draft, trigger)
    emit(
        tx,
        ctx,
        SnapshotRecorded(
            snapshot_id=snapshot_id, run_id=run_id, source=trigger.source, status=draft.status
        ),
        mission_id=known.agent["mission_id"] if known.agent else None,
        agent_id=known.agent_id,
    )
    tx.after_commit(
        LogLine("INFO", f"Snapshot recorded: {snapshot_id} ({trigger.source}) of {run_id}")
    )
    tx.after_commit(WriteBackup(noun="snapshot", record_id=snapshot_id))
    drop_surplus(tx, ctx, run_id)
    return snapshot_id


def _joins(ctx: Context, known: RunFacts, draft: Draft, trigger: Trigger) -> bool:
    """Return whether a trigger comes soon after the last one and adds nothing new."""
    newest, run = known.newest, known.run
    # What another agent declared is deleted when that agent is forgotten.
    if newest is None or run is None or newest.agent_id != known.agent_id:
        return False
    # Nobody steps the awake clock; the wall clock includes the time that the machine slept.
    awake = ctx.awake_ms - run["snapshot_awake_ms"]
    wall = since_last(ctx.now_ms, newest.created_at, newest.source_details)
    if max(awake, wall) > COALESCE_MS:
        return False
    return not _adds(trigger, draft, newest) and _material(newest) == _material(draft, newest)


def _adds(trigger: Trigger, draft: Draft, newest: Snapshot) -> bool:
    """Return whether a caller declares something that the newest snapshot lacks."""
    if trigger.digest is not None and draft.context_digest != newest.context_digest:
        return True
    declared = draft.command_outcomes if trigger.outcomes is not None else []
    return any(each not in newest.command_outcomes for each in declared)


def _material(one: Draft | Snapshot, before: Snapshot | None = None) -> tuple[object, ...]:
    """Return the values in which two snapshots differ materially.

    A failure in the snapshot ``before`` still counts unless something newer has failed.
    """
    failed = _newest_failure(one.command_outcomes)
    if failed is None and before is not None:
        failed = _newest_failure(before.command_outcomes)
    complied = replace(one.step_state.todo_compliance, checked_at="")
    step = replace(one.step_state, todo_compliance=complied)
    return one.status, step, one.context_digest.window_pressure, failed


def _newest_failure(outcomes: list[CommandOutcome]) -> tuple[str, str | None, str] | None:
    failures = (each for each in reversed(outcomes) if each.result == "FAIL")
    return next(((each.name, each.reason_code, each.summary) for each in failures), None)


def _join(tx: Tx, ctx: Context, known: RunFacts, newest: Snapshot, trigger: Trigger) -> str:
    """Let a trigger join the newest snapshot; the time until the next counts from here."""
    source = f"{trigger.source}: {trigger.note}" if trigger.note else trigger.source
    details = merged(newest.source_details, source, known.agent_id, ctx.now)
    tx.run(
        "UPDATE snapshots SET source_details_json = :details WHERE id = :id",
        details=msgspec.json.encode(details).decode(),
        id=newest.snapshot_id,
    )
    tx.run(
        "UPDATE runs SET snapshot_awake_ms = :awake WHERE id = :id",
        awake=ctx.awake_ms,
        id=known.run_id,
    )
    if known.agent and known.agent["mission_id"]:
        _tie(tx, newest.snapshot_id, [known.agent["mission_id"]])
    return newest.snapshot_id


def _insert(tx: Tx, ctx: Context, known: RunFacts, draft: Draft, trigger: Trigger) -> str:
    """Write the row of a snapshot, and its run's; return its id."""
    moment = ctx.now.translate(str.maketrans("", "", "-:."))
    content = SnapshotContent(
        # Each snapshot moves the end of the log, so no two have the same id.
        snapshot_id=f"cp_{moment}_{position(tx)}",
        created_at=ctx.now,
        run_id=known.run_id,
        source=trigger.source,
        status=draft.status,
        step_state=draft.step_state,
        context_digest=draft.context_digest,
        command_outcomes=draft.command_outcomes,
    )
    # This must run before the run's row notes that a snapshot covers the log.
    missions = _missions_of(tx, known, trigger, content.step_state)
    _keep_run(tx, ctx, known, draft)
    session = known.session or {}
    beside = {
        "gathered": int(trigger.outcomes is None),
        "agent_id": known.agent_id,
        "window_tokens": session.get("window_tokens"),
        "window_size": session.get("window_size"),
        "note": trigger.note,
        "machine": ctx.machine,
    }
    tx.insert("snapshots", to_columns(content) | beside)
    _tie(tx, content.snapshot_id, missions)
    return content.snapshot_id


def _keep_run(tx: Tx, ctx: Context, known: RunFacts, draft: Draft) -> None:
    tx.run(
        "INSERT INTO runs (id, agent_id, status, snapshot_awake_ms, events_seq)"
        " VALUES (:id, :agent, :status, :awake, :seq)"
        " ON CONFLICT (id) DO UPDATE SET status = excluded.status,"
        " agent_id = coalesce(excluded.agent_id, runs.agent_id),"
        " snapshot_awake_ms = excluded.snapshot_awake_ms, events_seq = excluded.events_seq",
        id=known.run_id,
        agent=known.agent_id,
        status=draft.status,
        awake=ctx.awake_ms,
        seq=draft.end,
    )


def _tie(tx: Tx, snapshot_id: str, missions: Iterable[str]) -> None:
    """Note the missions that a snapshot contains something of."""
    for mission_id in sorted(missions):
        tx.run(
            "INSERT INTO snapshot_missions (mission_id, snapshot_id) VALUES (:mission, :snapshot)"
            " ON CONFLICT (mission_id, snapshot_id) DO NOTHING",
            mission=mission_id,
            snapshot=snapshot_id,
        )


def _missions_of(tx: Tx, known: RunFacts, trigger: Trigger, state: StepState) -> set[str]:
    """Return the missions of a snapshot's content: its calls, last failure, locks and step."""
    span = uncovered_span(tx, known)
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
        last=nth_newest_position(tx, known.agent_id, LAST_EVENTS),
        most=MOST_EVENTS if trigger.outcomes is None else 0,
    )
    found = {row["mission_id"] for row in rows if row["mission_id"]}
    if known.newest is not None and _repeats(state, known.newest):
        rows = tx.all(
            "SELECT mission_id FROM snapshot_missions WHERE snapshot_id = :id",
            id=known.newest.snapshot_id,
        )
        found |= {row["mission_id"] for row in rows}
    return found


def _repeats(state: StepState, newest: Snapshot) -> bool:
    """Return whether a snapshot repeats the one before: its step, or its failure."""
    actions = state.resume_hints.next_actions
    if state == newest.step_state:
        return any((state.plan_path, state.step_id, actions, state.todo_compliance.violations))
    failed = [each.result for each in newest.command_outcomes[-1:]] == ["FAIL"]
    return failed and any(action.startswith(FAILED_FIRST) for action in actions)


_SUMMARY = (
    "id AS snapshot_id, run_id, timestamp AS created_at, source, status, step_id, step_ordinal,"
    " step_status, window_pressure, outcome_count, size_bytes, compressed_at"
)


def agent_of_run(tx: Tx, ctx: Context, run_id: str) -> str | None:
    """Return the agent of a run: its session's, else the one recorded last."""
    found = session_of_run(tx, run_id) or run_row(tx, run_id)
    return found["agent_id"] if found else None


def latest(tx: Tx, ctx: Context, run_id: str) -> Snapshot:
    """Return the newest snapshot of a run from its row."""
    row = newest_row(tx, run_id)
    if row is None:
        raise without_snapshots(run_id)
    return from_row(row)


@method(SnapshotList)
def list_snapshots(tx: Tx, ctx: Context, request: SnapshotList) -> SnapshotPage:
    """Return summaries, newest first, without reading the documents."""
    where = Where()
    where.add(LIVE)
    where.equal(run_id=request.run_id, agent_id=request.agent_id)
    where.since("timestamp", request.since_time)
    if request.run_id and not (run_row(tx, request.run_id) or session_of_run(tx, request.run_id)):
        raise without_snapshots(request.run_id)
    if request.run_id is None and request.agent_id is None and request.since_time is None:
        total = tally(tx, "snapshots")
    else:
        total = tx.value(f"SELECT count(*) FROM snapshots WHERE {where}", **where.params)
    rows = tx.all(
        f"SELECT {_SUMMARY} FROM snapshots WHERE {where} ORDER BY seq DESC LIMIT :limit",
        **where.params,
        limit=request.limit,
    )
    return SnapshotPage(snapshots=[SnapshotSummary(**row) for row in rows], total=total)


HOUR_MS = 3_600_000


def uncompressed(tx: Tx, ctx: Context, since: str) -> tuple[list[str], str | None]:
    """Return some snapshots with old uncompressed files here, from the time ``since`` on.

    The second value is the time to continue from, None at the end. The list is empty when settings
    turn this off.
    """
    hours = ctx.config.retention.snapshot_gzip_hours
    if not hours:
        return [], None
    rows = tx.all(
        f"SELECT id, timestamp FROM snapshots WHERE compressed_at IS NULL AND {LIVE}"
        " AND timestamp < :old AND timestamp >= :since AND backed_up_at IS NOT NULL"
        f" AND {KEPT_HERE} ORDER BY timestamp, id LIMIT :limit",
        old=ctx.at(-hours * HOUR_MS),
        since=since,
        machine=ctx.machine,
        limit=ctx.batches.compressed,
    )
    is_full = len(rows) == ctx.batches.compressed
    return [row["id"] for row in rows], rows[-1]["timestamp"] if is_full else None


def note_compressed(tx: Tx, ctx: Context, snapshot_id: str, digest: str, size_bytes: int) -> bool:
    """Keep the checksum of a file's compressed bytes; return False if the snapshot is gone."""
    row = tx.one(
        "UPDATE snapshots SET compressed_at = :now, gzip_digest = :digest, gzip_bytes = :size"
        f" WHERE id = :id AND {LIVE} AND backed_up_at IS NOT NULL RETURNING id",
        now=ctx.now,
        digest=digest,
        size=size_bytes,
        id=snapshot_id,
    )
    return row is not None
