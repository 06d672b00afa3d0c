"""Overview: the state of the fleet in figures, as far as the store knows it."""

from ...protocol.records import Record, Recovery, RecoveryCandidate, percent
from ...protocol.status import Counts, MachineLine, MissionLine
from ..artifacts.outbox import unwritten
from ..cluster import membership
from ..core.context import Context
from ..core.counters import What, tally, tally_of_events
from ..core.event_log import epoch, position
from ..core.mappers import columns_of, recovery_of
from ..core.tx import Row, Tx
from ..liveness.silence import silence_ms, waiting_missions
from ..missions.selection import is_automatic


class Overview(Record, frozen=True, kw_only=True):
    """What the status and the metrics need from the store."""

    counts: Counts
    missions: list[MissionLine]
    candidates: list[RecoveryCandidate]
    recoveries: list[Recovery]
    backup_backlog: int
    machines: list[MachineLine]
    position: int
    epoch: str


_TALLIED: tuple[What, ...] = (
    *("missions", "sorties", "agents", "checkpoints", "snapshots", "recoveries"),
)
# These read only the indexes of held locks and waiting messages, however long the history is.
_HELD = "SELECT count(*) FROM locks WHERE status = 'active' AND expires_at > :now"
_WAITING = "SELECT count(DISTINCT message_id) FROM deliveries WHERE status = 'queued'"


def overview(tx: Tx, ctx: Context) -> Overview:
    """Return the counts, and the missions in progress, the most recently active first."""
    rows = tx.all(
        "SELECT m.*, (SELECT count(*) FROM agents a WHERE a.mission_id = m.id"
        " AND a.status IN ('active', 'waiting', 'idle')) AS agents,"
        " (SELECT count(*) FROM agents a WHERE a.mission_id = m.id"
        " AND a.needs = 'permission') AS needs_permission,"
        " (SELECT count(*) FROM locks l WHERE l.mission_id = m.id AND l.status = 'active'"
        " AND l.expires_at > :now) AS locks"
        " FROM missions m WHERE m.status = 'in_progress' ORDER BY m.last_activity_seq DESC",
        now=ctx.now,
    )
    # An agent that was briefed and never came back no longer matters once the mission is over.
    under_way = tx.all(
        "SELECT r.* FROM recoveries r JOIN missions m ON m.id = r.mission_id"
        " WHERE r.state <> 'resumed' AND m.status IN ('pending', 'in_progress')"
        " ORDER BY r.seq DESC"
    )
    return Overview(
        counts=Counts(
            locks=tx.value(_HELD, now=ctx.now),
            messages=tx.value(_WAITING),
            events=tally_of_events(tx),
            **{noun: tally(tx, noun) for noun in _TALLIED},
        ),
        missions=[_line(ctx, row) for row in rows],
        candidates=waiting_missions(tx, ctx),
        recoveries=[recovery_of(row) for row in under_way],
        backup_backlog=unwritten(tx, ctx),
        machines=membership.list_machines(tx, ctx),
        position=position(tx),
        epoch=epoch(tx),
    )


def _line(ctx: Context, row: Row) -> MissionLine:
    return MissionLine(
        mission_id=row["id"],
        progress_percent=percent(row["completed_sorties"], row["total_sorties"]),
        silence_ms=silence_ms(ctx, row),
        automatic=is_automatic(row),
        **columns_of(MissionLine, row),
    )
