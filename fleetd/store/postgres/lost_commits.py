"""Lost-commit detection: whether a server that is found again has all that was committed.

After a failover the server is another one, which may lack the last commits of the one before.
"""

import threading

import msgspec

from ..api import LostCommits
from .connection import ServerConnection
from .errors import ServerBehind
from .server_clock import NOW_MS
from .url import ServerAddress

END = (
    "greatest((SELECT max(seq) FROM events), (SELECT value FROM counters WHERE name = 'events'), 0)"
)
_POSITION = (
    f"SELECT (SELECT batch FROM writers WHERE machine = %s), {END},"
    " (SELECT value FROM store_meta WHERE key = 'epoch'), (SELECT version FROM schema_version),"
    f" {NOW_MS}"
)


class CommitPosition(msgspec.Struct, frozen=True):
    """How far a server has come: this machine's last batch, the log's end, the epoch.

    ``own`` is the log's end after that batch: where the batch is, everything up to there is.
    ``schema`` is the version of the schema, and ``now_ms`` the server's time in ms since the Unix
    epoch, as far as they were asked for.
    """

    batch: int = 0
    end: int = 0
    epoch: str | None = None
    own: int = 0
    schema: int = 0
    now_ms: int = 0


class LostCommitDetector:
    """Compares each server that is found with the one that was lost; used by several threads."""

    def __init__(self, machine: str, where: ServerAddress) -> None:
        self._machine = machine
        self._where = where
        self._known: CommitPosition | None = None
        self._lock = threading.Lock()
        self.lost: LostCommits | None = None
        """What the newest server lacked that was known, None when it lacked nothing."""

    @property
    def batch(self) -> int:
        """Return the number of this machine's last batch that is known to be committed."""
        return self._known.batch if self._known else 0

    def look(self, connection: ServerConnection, *, acts: bool = True) -> None:
        """Take the measure of a server that was just connected to; raises psycopg.Error.

        Raises ServerBehind, once, when it lacks anything: nobody may go on as if it did not.
        Without ``acts`` the next look finds the same.
        """
        known = self._known  # as it was before we ask: others go on committing meanwhile
        found = self._ask(connection)
        if known is None:
            self._advance(found)
            return
        behind = found.batch < known.batch or found.end < known.end
        # In a new epoch the numbers that others had given out may mean something else.
        doubtful = known.epoch not in (None, found.epoch) and known.own < known.end
        if not behind and not doubtful:
            self._advance(_of_others(found))
            return
        lost = self._lost(found, known)
        if acts:
            self._known, self.lost = found, lost
        raise ServerBehind("comparing", lost.why)

    def _lost(self, found: CommitPosition, known: CommitPosition) -> LostCommits:
        """Return what is missing, or was until others gave its numbers to something else."""
        missing = max(0, known.batch - found.batch)
        batches = f", and {missing} of this machine's last commits are missing" if missing else ""
        why = (
            f"{self._where.name} was replaced by a server without the last commits: its"
            f" log ends at {found.end}, but had reached {known.end}{batches}"
        )
        # A store that was new when it was looked at had no epoch yet.
        if known.epoch in (None, found.epoch):
            return LostCommits(found.end, max(known.end, found.end), why)
        # Another machine began an epoch. It serves this machine too if it began above our position.
        return LostCommits(min(known.end, found.end), known.end, why)

    def _ask(self, connection: ServerConnection) -> CommitPosition:
        row = connection.execute(_POSITION, (self._machine,)).fetchone()
        batch, end, epoch, schema, now_ms = row or (0, 0, None, 0, 0)
        return CommitPosition(batch or 0, end, epoch, schema=schema or 0, now_ms=now_ms)

    def follow(self, connection: ServerConnection) -> CommitPosition:
        """Keep up with what others commit, on a server that was looked at; return where it is."""
        found = self._ask(connection)
        self._advance(_of_others(found))
        return found

    def note(self, batch: int, end: int) -> None:
        """Note what this machine has committed."""
        self._advance(CommitPosition(batch, end, own=end))

    def _advance(self, found: CommitPosition) -> None:
        """Go on from what is known; what is older says nothing."""
        with self._lock:
            known = self._known or CommitPosition()
            self._known = CommitPosition(
                max(known.batch, found.batch),
                max(known.end, found.end),
                found.epoch or known.epoch,
                max(known.own, found.own),
            )


def _of_others(found: CommitPosition) -> CommitPosition:
    """Return what is seen without this machine's batches, which its writer counts.

    Those that it did not are another daemon's under our id, and that has to be noticed.
    """
    return msgspec.structs.replace(found, batch=0)
