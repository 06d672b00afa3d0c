"""The status of the fleet, and what the daemon measures of itself."""

from .records import Record, Recovery, RecoveryCandidate
from .types import MachineStatus, StoreKind


class Timing(Record, frozen=True, kw_only=True):
    """A duration in ms, measured since the daemon's start; p50 and p95 are within 7 %."""

    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float


class MethodTiming(Timing, frozen=True, kw_only=True):
    """The time that the requests of a method took.

    It starts when a request is parsed and has its place among those in flight (in a batch: at the
    end of the previous one) and ends when its reply is ready to be sent. Intended waits, such as
    for a lock, count.
    """

    method: str


class OptimisticFigures(Record, frozen=True, kw_only=True):
    """Commits to a shared store that do not wait for the turn of all machines.

    Of the ``tries``, ``conflicts`` were repeated as another machine had changed the same.
    ``in_turn`` counts requests that waited for the turn in the end.
    """

    tries: int
    conflicts: int
    in_turn: int


class WriterFigures(Record, frozen=True, kw_only=True):
    """The load of the writer: waiting requests, and the size of each group commit.

    ``commit`` is the COMMIT of transactions with changes: the sync of the disk. ``optimistic`` is
    null in local mode.
    """

    queue: int
    queue_max: int
    batches: int
    batch_mean: float
    batch_p95: int
    batch_max: int
    commit: Timing
    optimistic: OptimisticFigures | None = None


class ConnectionFigures(Record, frozen=True, kw_only=True):
    """Connections now, at most so far, and allowed; the rest counts since the daemon's start.

    ``refused`` were another user's; ``cut_off`` broke a limit, or did not send or take a line in
    time.
    """

    open: int
    open_max: int
    limit: int
    accepted: int
    refused: int
    cut_off: int


class MissionLine(Record, frozen=True, kw_only=True):
    """A mission in progress in the status; an ``automatic`` one was created for a session.

    ``needs_permission`` counts its agents that wait for a permission.
    """

    mission_id: str
    title: str
    progress_percent: int
    completed_sorties: int
    total_sorties: int
    last_activity_at: str | None
    silence_ms: int
    agents: int
    locks: int
    automatic: bool = False
    needs_permission: int = 0


class Counts(Record, frozen=True, kw_only=True):
    """The number of records in the store; of locks the active, of messages the undelivered ones."""

    missions: int
    sorties: int
    agents: int
    locks: int
    messages: int
    events: int
    checkpoints: int
    snapshots: int
    recoveries: int


class MachineLine(Record, frozen=True, kw_only=True):
    """A machine that shares the store; ``agents`` counts its agents, as far as known.

    The daemon of a ``left`` machine ended properly; a ``lost`` machine sends no heartbeat.
    """

    machine_id: str
    name: str
    status: MachineStatus
    started_at: str
    heard_at: str
    agents: int


class AwayStatus(Record, frozen=True, kw_only=True):
    """The failure to reach a shared store: its begin, the step, and the error."""

    since_at: str
    for_ms: int
    step: str
    message: str


class StoreStatus(Record, frozen=True, kw_only=True):
    """The store and ``where`` it is, without any password; ``away`` while it cannot be reached.

    ``since`` is when the daemon caught up with it, null before. ``reconnects`` counts its returns
    since the daemon's start. ``lost`` names commits that the store lacked, as far as this daemon
    saw them; null if none.
    """

    kind: StoreKind
    where: str
    version: str
    since: str | None
    reconnects: int
    away: AwayStatus | None
    lost: str | None = None


class Status(Record, frozen=True, kw_only=True):
    """The state of the fleet; ``recoveries`` lists those after which nobody resumed work.

    While ``store.away`` reports that the store cannot be reached, ``counts``, ``position`` and
    ``epoch`` are null, and other values from the store are empty or 0.

    ``backup_backlog`` counts checkpoints and snapshots that wait for their file. ``latencies``
    covers the methods that were called, ``errors`` counts replies by kind. ``machines`` share the
    store, the latest heartbeat first, and ``machine`` is the one that answers; an unshared store
    names none. ``spool_files`` counts payloads of hooks that wait in the spool. ``conflicts``
    counts files that several living agents changed within the last hour.
    """

    version: str
    pid: int
    started_at: str
    uptime_ms: int
    counts: Counts | None
    missions: list[MissionLine]
    candidates: list[RecoveryCandidate]
    recoveries: list[Recovery]
    backup_backlog: int
    database_bytes: int
    wal_bytes: int
    position: int | None
    epoch: str | None
    latencies: list[MethodTiming]
    errors: dict[str, int]
    writer: WriterFigures
    connections: ConnectionFigures
    machine: str | None = None
    machines: list[MachineLine] = []
    store: StoreStatus | None = None
    spool_files: int = 0
    spool_bytes: int = 0
    conflicts: int = 0
