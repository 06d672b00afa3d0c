"""What every store offers and raises: errors, its writer's load, whether it can be reached."""

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
    """The disk refuses for now, so that starting again later may help."""


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
    """A copy failed its checks, which is to say that what it was made of is damaged."""


class StoreFailed(Exception):
    """The disk failed while the store was open; nothing further may be acknowledged."""


class LostCommits(msgspec.Struct, frozen=True):
    """A log that ends at ``end`` but had reached ``reached``; ``why`` says it in words."""

    end: int
    reached: int
    why: str


class Load(msgspec.Struct, frozen=True):
    """How busy the writer is and was; ``commits`` are microseconds, ``batches`` jobs."""

    waiting: int
    most_waiting: int
    batches: Histogram
    commits: Histogram
    optimistic: OptimisticFigures | None = None
    """None where nobody else writes."""


class StoreAway(Unavailable):
    """The store cannot be reached; who only wants to know may wait until it is back."""


_MEND = "This needs a repair on the server or in this machine's settings."
_HINT = "fleetd keeps trying, and hooks go to the spool. Run fleetctl status for details."


class Away(msgspec.Struct, frozen=True):
    """That a store cannot be reached: since when, in ms of its clock, at which step, and why.

    ``message`` is one sentence that names the server, and never a secret.
    """

    since_ms: int
    step: str
    message: str
    final: bool = False
    """Whether somebody has to mend it: it is tried again all the same."""

    def refusal(self, now_ms: int) -> StoreAway:
        """Return the error for everybody who needs the store now."""
        for_ms = max(0, now_ms - self.since_ms)
        return StoreAway(
            f"{self.message.rstrip('.')}; unreachable for {duration(for_ms)}.",
            hint=_MEND if self.final else _HINT,
            retry=True,
            step=self.step,
            away_ms=for_ms,
        )


class Optimistic(Generic[T]):
    """A rule that may run before its turn, in a store that has turns: more than once then."""

    def __init__(self, rule: Callable[[Tx], T]) -> None:
        self._rule = rule

    def __call__(self, tx: Tx) -> T:
        """Run the rule."""
        return self._rule(tx)


class Followers:
    """Who waits for commits: a store listens for those of other machines only meanwhile.

    All of it is of the trio thread.
    """

    def __init__(self) -> None:
        self.number = 0
        self.on_arrival: Callable[[], None] = lambda: None
        """What a store wants to have called when somebody begins to wait."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count somebody who waits inside."""
        self.number += 1
        self.on_arrival()
        try:
            yield
        finally:
            self.number -= 1


class Availability:
    """Whether a store is there, as a store tells it: one of this machine's always is.

    ``up`` is set while it is there. ``down`` is set when it has gone, and another event by the
    time that it is back: whoever took it while it was there misses nothing.
    """

    def __init__(self, away: Away | None = None) -> None:
        self.away = away
        self.up, self.down = trio.Event(), trio.Event()
        self.reconnects = 0
        (self.up if away is None else self.down).set()

    def lose(self, away: Away) -> None:
        """Note that the store is away, or why it still is; call it on the trio thread."""
        if self.away is None:
            self.up = trio.Event()
            self.away = away
            self.down.set()
        else:
            self.away = msgspec.structs.replace(away, since_ms=self.away.since_ms)

    def regain(self) -> None:
        """Note that the store is there again; call it on the trio thread."""
        if self.away is not None:
            self.away = None
            self.reconnects += 1
            self.down = trio.Event()
            self.up.set()
