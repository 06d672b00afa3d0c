"""Hook deliveries: recognise retries and duplicates of two vendors, count them by harness.

Deliveries are kept for a day. The spool is taken in before anything is dropped, so a retry never
comes later.
"""

import hashlib

import msgspec

from ...harness.report import Report, SessionEnded, SessionStarted, WindowUsed
from ..core.context import Context
from ..core.counters import by_part
from ..core.registry import frees_space
from ..core.tx import Row, Tx
from .sightings import silent_sessions

DUPLICATE_MS = 2_000
KEPT_MS = 86_400_000
# What a harness may still report when fleetd no longer understands it.
_BOUNDS = (SessionStarted, SessionEnded, WindowUsed)

_encode = msgspec.json.Encoder(order="sorted").encode


def fingerprint(report: Report) -> str:
    """Return a hash that two copies of one event share, even in the formats of two vendors."""
    material = (
        report.harness,
        report.session_id,
        report.subagent,
        report.moment,
        report.happenings or report.event,
    )
    return hashlib.sha256(_encode(material)).hexdigest()


def find_earlier(tx: Tx, delivery_id: str, mark: str, happened_ms: int) -> tuple[bool, int | None]:
    """Return whether this delivery was taken before, and the place of an equal one close in time.

    ``mark`` is its fingerprint.
    """
    # Not the first in descending order: sorting nothing takes longer than all the rest.
    [(known, equal)] = tx.tuples(
        "SELECT (SELECT seq FROM hook_deliveries WHERE id = :id),"
        " (SELECT max(seq) FROM hook_deliveries WHERE fingerprint = :mark"
        " AND happened_ms BETWEEN :after AND :before)",
        id=delivery_id,
        mark=mark,
        after=happened_ms - DUPLICATE_MS,
        before=happened_ms + DUPLICATE_MS,
    )
    return known is not None, equal


def is_duplicate(tx: Tx, report: Report, equal: int | None) -> bool:
    """Return whether the event came twice, as with hooks in both the settings and a plugin.

    ``equal`` is the place of a delivery that looks the same. A tool call or a moment does not come
    twice. An event with neither is a duplicate only if nothing else came from its session in
    between: two compactions in a row look the same.
    """
    calls = (getattr(happening, "call_id", None) for happening in report.happenings)
    if equal is None or report.moment is not None or any(calls):
        return equal is not None
    between = tx.one(
        "SELECT 1 AS other FROM hook_deliveries WHERE session_id = :session AND seq > :seq",
        session=report.session_id,
        seq=equal,
    )
    return between is None


def insert_delivery(
    tx: Tx,
    ctx: Context,
    delivery_id: str,
    report: Report,
    *,
    mark: str,
    happened_ms: int,
    from_spool: bool,
) -> None:
    """Record a delivery, and count it; ``happened_ms`` is when the hook ran."""
    tx.insert(
        "hook_deliveries",
        {
            "id": delivery_id,
            "harness": report.harness,
            "session_id": report.session_id,
            "event": report.event,
            "fingerprint": mark,
            "happened_ms": happened_ms,
            "received_at": ctx.now,
        },
    )
    _count(tx, ctx, report.harness, report, from_spool=from_spool, unfit=False)


def count_unfit(tx: Tx, ctx: Context, delivery_id: str, harness: str, *, from_spool: bool) -> None:
    """Count, only once, a payload that contains nothing we know."""
    if not tx.exists("SELECT 1 AS known FROM hook_deliveries WHERE id = :id", id=delivery_id):
        row = {"id": delivery_id, "harness": harness, "received_at": ctx.now}
        tx.insert("hook_deliveries", row)
        _count(tx, ctx, harness, None, from_spool=from_spool, unfit=True)


def _count(
    tx: Tx, ctx: Context, harness: str, report: Report | None, *, from_spool: bool, unfit: bool
) -> None:
    happenings = report.happenings if report else ()
    has_content = any(not isinstance(each, _BOUNDS) for each in happenings)
    tx.run(
        "INSERT INTO hook_counts (harness, deliveries, from_spool, unfit, last_event,"
        " last_event_at, told_at, version)"
        " VALUES (:harness, 1, :from_spool, :unfit, :event, :now, :told_at, :version)"
        " ON CONFLICT (harness) DO UPDATE SET deliveries = hook_counts.deliveries + 1,"
        " from_spool = hook_counts.from_spool + excluded.from_spool,"
        " unfit = hook_counts.unfit + excluded.unfit,"
        " last_event = coalesce(excluded.last_event, hook_counts.last_event),"
        " last_event_at = excluded.last_event_at,"
        " told_at = coalesce(excluded.told_at, hook_counts.told_at),"
        " version = coalesce(excluded.version, hook_counts.version)",
        harness=harness,
        from_spool=int(from_spool),
        unfit=int(unfit),
        event=report.event if report else None,
        now=ctx.now,
        told_at=ctx.now if has_content else None,
        version=(report.version or ctx.facts.harness_version) if report else None,
    )


@frees_space
def prune_deliveries(tx: Tx, ctx: Context) -> bool:
    """Delete deliveries older than a day, in batches; return whether there were any."""
    dropped = tx.one(
        "DELETE FROM hook_deliveries WHERE id IN (SELECT id FROM hook_deliveries"
        " WHERE received_at < :old ORDER BY received_at LIMIT :limit) RETURNING id",
        old=ctx.at(-KEPT_MS),
        limit=ctx.batches.kept_answers,
    )
    return dropped is not None


def hook_counts(tx: Tx, ctx: Context) -> list[Row]:
    """Return the counts of every known harness, with the number of its sessions."""
    sessions = by_part(tx, "sessions")
    counts = []
    for row in tx.all("SELECT * FROM hook_counts ORDER BY harness"):
        silent, since = silent_sessions(tx, ctx, row["harness"], row["told_at"])
        silence = {"silent_sessions": silent, "silent_since": since}
        counts.append({**row, **silence, "sessions": sessions.get(row["harness"], 0)})
    return counts
