"""The status of the fleet, and what the daemon measures of itself."""

from .records import Record, Recovery, RecoveryCandidate
from .types import MachineStatus, StoreKind


class Timing(Record, frozen=True, kw_only=True):
    """How long something took, in ms since the daemon's start; p50 and p95 are within 7 %."""

    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float


class MethodTiming(Timing, frozen=True, kw_only=True):
    """How long the requests of a method took.

    From the moment a request was understood and had its place among those in flight (within a batch
    of requests: from the end of the one before) until its reply was ready to be sent. What it
    waited for on purpose, such as a lock, is part of it.
    """

    method: str


class WriterFigures(Record, frozen=True, kw_only=True):
    """How busy the writer is: requests that wait, and how many each group commit carried.

    ``commit`` is the COMMIT alone, of transactions that changed something: the sync of the disk.
    """

    queue: int
    queue_max: int
    batches: int
    batch_mean: float
    batch_p95: int
    batch_max: int
    commit: Timing


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
    """A mission in progress, as the status shows it; ``automatic`` ones were made for a session.

    ``needs_permission`` counts those of its agents that wait until a person permits something.
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
    """How many of each the store holds; locks are active ones, messages undelivered ones."""

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
    """A machine that shares the store; ``agents`` are those that live on it as far as is known.

    ``left`` is one whose daemon ended in good order, ``lost`` one that is not heard of any more.
    """

    machine_id: str
    name: str
    status: MachineStatus
    started_at: str
    heard_at: str
    agents: int


class AwayStatus(Record, frozen=True, kw_only=True):
    """That a shared store cannot be reached: since when, at which step, and what was said."""

    since_at: str
    for_ms: int
    step: str
    message: str


class StoreStatus(Record, frozen=True, kw_only=True):
    """What keeps everything, and ``where``, without any password; ``away`` while it is not there.

    ``since`` is when the daemon had caught up with it, null until it has. ``reconnects`` counts how
    often it came back since the daemon's start. ``lost`` says what the store lacked of what had
    been committed, as far as this daemon saw it; null when nothing.
    """

    kind: StoreKind
    where: str
    version: str
    since: str | None
    reconnects: int
    away: AwayStatus | None
    lost: str | None = None


class Status(Record, frozen=True, kw_only=True):
    """The state of the fleet at a glance; ``recoveries`` are those after which nobody went on.

    While ``store.away`` says that the store cannot be reached, ``counts``, ``position`` and
    ``epoch`` are null and what else only the store knows is empty or 0.

    ``backup_backlog`` counts checkpoints and snapshots that wait for their file. ``latencies`` are
    of the methods that were called, ``errors`` how many replies told of each kind. ``machines``
    share the store, the one heard of last first, and ``machine`` is the one that answers; a store
    that one machine has to itself names none. ``spool_files`` are payloads of hooks that wait to be
    taken in.
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
