"""Interface shared by all stores: errors, the writer's load and whether the store is reachable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec
import trio

from ..domain.core.tx import Tx
from ..host.histogram import Histogram
from ..protocol.display import duration
from ..protocol.errors import Unavailable
from ..protocol.status import OptimisticFigures

T = TypeVar("T")


class StoreRefused(Exception):
    """The store cannot be opened; the text says why and what to do."""


class StoreUnready(StoreRefused):
    """The disk refuses for now; starting again later may help."""


class StoreFull(StoreUnready):
    """There is no room to open the store."""


class CopyFailed(Exception):
    """A copy of the database could not be written; the text says why."""


class CopyRefused(Exception):
    """This kind of store is not copied into a file; ``hint`` says what to do instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class CopyDamaged(CopyFailed):
    """A copy failed its checks, so its source is damaged."""


class StoreFailed(Exception):
    """The disk failed while the store was open; nothing further may be acknowledged."""


class LostCommits(msgspec.Struct, frozen=True):
    """A log that ends at ``end`` but had reached ``reached``; ``why`` is the explanation."""

    end: int
    reached: int
    why: str


class Load(msgspec.Struct, frozen=True):
    """How busy the writer is and was; ``commits`` is in microseconds, ``batches`` in jobs."""

    waiting: int
    most_waiting: int
    batches: Histogram
    commits: Histogram
    optimistic: OptimisticFigures | None = None
    """None where there is no other writer."""


class StoreAway(Unavailable):
    """The store cannot be reached; a caller that only reads may wait until it is back."""


_MEND = "This needs a repair on the server or in this machine's settings."
_HINT = "fleetd keeps trying, and hooks go to the spool. Run fleetctl status for details."


class Away(msgspec.Struct, frozen=True):
    """An outage of the store: since when, in ms of the store's clock, at which step, and why.

    ``message`` is one sentence that names the server and never contains a secret.
    """

    since_ms: int
    step: str
    message: str
    final: bool = False
    """Whether somebody has to repair it; the store retries anyway."""

    def refusal(self, now_ms: int) -> StoreAway:
        """Return the error for every caller that needs the store now."""
        for_ms = max(0, now_ms - self.since_ms)
        return StoreAway(
            f"{self.message.rstrip('.')}; unreachable for {duration(for_ms)}.",
            hint=_MEND if self.final else _HINT,
            retry=True,
            step=self.step,
            away_ms=for_ms,
        )


class _Marked(Generic[T]):
    """A rule with a mark for a store that has turns; any other store just runs it."""

    def __init__(self, rule: Callable[[Tx], T]) -> None:
        self._rule = rule

    def __call__(self, tx: Tx) -> T:
        """Run the rule."""
        return self._rule(tx)


class Optimistic(_Marked[T]):
    """A rule that may run before its turn, then more than once."""


class WithoutTurn(_Marked[T]):
    """A rule of one statement that needs no turn.

    It may be committed twice, and a crash of the server may undo it.
    """


class Followers:
    """Tasks that wait for commits; only then does a store listen for other machines' commits.

    Use it on the trio thread only.
    """

    def __init__(self) -> None:
        self.number = 0
        self.on_arrival: Callable[[], None] = lambda: None
        """Called when a task begins to wait; the store sets it."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count one waiting task while the block runs."""
        self.number += 1
        self.on_arrival()
        try:
            yield
        finally:
            self.number -= 1


class Availability:
    """Whether a store is reachable, as the store reports it; a local store always is.

    ``up`` is set while the store is reachable. ``down`` is set when the store is lost, and is a
    new event by the time the store is back: a task that took the old one misses nothing.
    """

    def __init__(self, away: Away | None = None) -> None:
        self.away = away
        self.up, self.down = trio.Event(), trio.Event()
        self.reconnects = 0
        (self.up if away is None else self.down).set()

    def lose(self, away: Away) -> None:
        """Note that the store is unreachable, or why it still is; call it on the trio thread."""
        if self.away is None:
            self.up = trio.Event()
            self.away = away
            self.down.set()
        else:
            self.away = msgspec.structs.replace(away, since_ms=self.away.since_ms)

    def regain(self) -> None:
        """Note that the store is reachable again; call it on the trio thread."""
        if self.away is not None:
            self.away = None
            self.reconnects += 1
            self.down = trio.Event()
            self.up.set()
