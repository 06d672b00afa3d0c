"""Transaction that a rule works on, and its effects after COMMIT."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, Protocol, TypeVar

import msgspec

from ...protocol.types import Noun

Row = dict[str, Any]


class Effect(msgspec.Struct, frozen=True):
    """Something that the engine does once the transaction is committed."""


class WriteBackup(Effect, frozen=True):
    """Write the backup file of a checkpoint or a snapshot."""

    noun: Noun
    record_id: str


class RemoveBackup(Effect, frozen=True):
    """Remove the file of a record that is marked deleted, then its row."""

    noun: Noun
    record_id: str


class WatchProcess(Effect, frozen=True):
    """Watch an agent's process; ``started`` distinguishes it from a later one of the same pid."""

    agent_id: str
    pid: int
    started: str | None


class ConfirmAsks(Effect, frozen=True):
    """Look up when the next request for permission counts."""


class Ring(Effect, frozen=True):
    """Wake the waiters for events."""


class LogLine(Effect, frozen=True):
    """Write a line to the daemon's log."""

    level: str
    text: str


class TookTooLong(Exception):
    """A statement was cancelled because it took longer than its rule allows."""


class Execute(Protocol):
    """Runs statements with named parameters."""

    def limited(self, most_ms: int, /) -> AbstractContextManager[None]:
        """Cancel each statement inside after ``most_ms``, with TookTooLong."""
        ...

    def __call__(self, sql: str, params: Row, /) -> list[Row]:
        """Run one statement and return its rows."""
        ...

    def tuples(self, sql: str, params: Row, /) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows without the names of their columns."""
        ...

    def many(self, sql: str, params: Iterable[Row], /) -> None:
        """Run one statement once for each set of parameters."""
        ...


C = TypeVar("C", bound=msgspec.Struct)


class Repeat:
    """Gives each run of a rule the context of its first run: the same time and ids.

    For a store that runs a rule several times for one commit.
    """

    def __init__(self) -> None:
        self._context: Any = None
        self._drawn: list[tuple[str, str]] = []

    def context(self, make: Callable[[], C]) -> C:
        """Return what ``make`` made the first time; its ``new_id`` draws the same ids again."""
        if self._context is None:
            self._context = make()
        draw, drawn, at = self._context.new_id, self._drawn, count()

        def new_id(prefix: str) -> str:
            place = next(at)
            if place == len(drawn) or drawn[place][0] != prefix:
                drawn[place:] = [(prefix, draw(prefix))]
            return drawn[place][1]

        again: C = msgspec.structs.replace(self._context, new_id=new_id)
        return again


class Sized(Protocol):
    """A value that knows how much memory it takes."""

    @property
    def size(self) -> int:
        """Return its approximate size in bytes."""
        ...


K = TypeVar("K", bound=Sized)


class Kept(Protocol):
    """Caches what is computed from a mission's sorties while none of them is written."""

    def __call__(self, mission_id: str, make: Callable[[], K], /) -> K:
        """Return the cached value, else what ``make`` returns."""
        ...


class Tx:
    """One request's view of the store; a rule that raises rolls all of it back.

    Use ``run`` for statements whose rows you do not need. Effects happen only after COMMIT.
    """

    def __init__(
        self, execute: Execute, kept: Kept | None = None, repeat: Repeat | None = None
    ) -> None:
        self._execute = execute
        self._repeat = repeat
        self._kept = kept
        self._effects: dict[Effect, None] = {}
        self.log_end = 0
        """The position of the newest event; 0 when this transaction does not know it."""
        self.changes: dict[str, Any] = {}
        """Changes in the states of missions that no event carries yet, by mission."""
        self.last_seqs: dict[str, int] = {}
        """The newest event of each mission that this transaction has written."""
        self.touched: dict[str, dict[Any, None]] = {}
        """The records whose history this transaction continues, by table."""

    def context(self, make: Callable[[], C]) -> C:
        """Return the context of the running rule: from ``make``, or from its first run."""
        return self._repeat.context(make) if self._repeat else make()

    @property
    def effects(self) -> list[Effect]:
        """Return the effects to run after COMMIT, in order, each once."""
        return list(self._effects)

    def all(self, sql: str, /, **params: Any) -> list[Row]:
        """Return every row of a query, as dicts."""
        return self._execute(sql, params)

    def tuples(self, sql: str, /, **params: Any) -> list[tuple[Any, ...]]:
        """Return every row of a query as a tuple; for queries with hundreds of rows."""
        return self._execute.tuples(sql, params)

    def one(self, sql: str, /, **params: Any) -> Row | None:
        """Return the first row of a query, or None."""
        rows = self._execute(sql, params)
        return rows[0] if rows else None

    def exists(self, sql: str, /, **params: Any) -> bool:
        """Return whether a query has any row."""
        return bool(self._execute.tuples(sql, params))

    def value(self, sql: str, /, **params: Any) -> Any:
        """Return the first column of the first row, or None."""
        rows = self._execute.tuples(sql, params)
        return rows[0][0] if rows else None

    def run(self, sql: str, /, **params: Any) -> None:
        """Run a statement for its side effects."""
        self._execute(sql, params)

    def many(self, sql: str, params: Iterable[Row], /) -> None:
        """Run a statement for its side effects, once for each set of parameters, in order."""
        self._execute.many(sql, params)
        if sql.startswith("INSERT INTO events"):
            self.log_end = 0  # the statement does not return their positions

    def insert(self, table: str, columns: Row) -> None:
        """Write one row; names of the table and columns come from this program only."""
        names = ", ".join(columns)
        values = ", ".join(f":{name}" for name in columns)
        self._execute(f"INSERT INTO {table} ({names}) VALUES ({values})", columns)

    def of_sorties(self, mission_id: str, make: Callable[[], K]) -> K:
        """Return what ``make`` computes from a mission's sorties, cached until one is written.

        A store that others write to cannot detect their writes, so ``make`` runs each time.
        """
        return self._kept(mission_id, make) if self._kept else make()

    def after_commit(self, effect: Effect) -> None:
        """Run an effect once this transaction is on disk, and only then."""
        self._effects[effect] = None

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        """Cancel each statement inside that takes longer, with TookTooLong."""
        return self._execute.limited(most_ms)

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Undo everything that happens inside, even when nothing fails."""
        effects, end = self._effects.copy(), self.log_end
        changes, last_seqs, touched = self.changes, self.last_seqs.copy(), self.touched
        self.changes, self.touched = {}, {}
        self._execute("SAVEPOINT rehearsal", {})
        try:
            yield
        finally:
            self._execute("ROLLBACK TO rehearsal", {})
            self._execute("RELEASE rehearsal", {})
            self._effects, self.log_end = effects, end
            self.changes, self.last_seqs, self.touched = changes, last_seqs, touched

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo everything that happens inside if it raises, and raise the error again."""
        effects, end = self._effects.copy(), self.log_end
        self._execute("SAVEPOINT attempt", {})
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK TO attempt", {})
            self._execute("RELEASE attempt", {})
            self._effects, self.log_end = effects, end
            raise
        self._execute("RELEASE attempt", {})


Rule = Callable[[Tx], Any]
