"""Transaction: what a rule works on, and its effects after COMMIT."""

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
    """Remove the file of what is marked deleted, then its row."""

    noun: Noun
    record_id: str


class WatchProcess(Effect, frozen=True):
    """Have an agent's process watched; ``started`` tells it from a later one of the same pid."""

    agent_id: str
    pid: int
    started: str | None


class ConfirmAsks(Effect, frozen=True):
    """Look when the next request for permission counts."""


class Ring(Effect, frozen=True):
    """Wake those who wait for events."""


class LogLine(Effect, frozen=True):
    """Say something in the daemon's log."""

    level: str
    text: str


class TookTooLong(Exception):
    """A statement was ended, as it took longer than its rule allows."""


class Execute(Protocol):
    """Runs statements with named parameters."""

    def limited(self, most_ms: int, /) -> AbstractContextManager[None]:
        """End each statement inside after so long, with TookTooLong."""
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
    """Gives each run of a rule the context of its first: the same time, and the same ids.

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
    """A value that knows how much room it takes."""

    @property
    def size(self) -> int:
        """Return how many bytes it has, about."""
        ...


K = TypeVar("K", bound=Sized)


class Kept(Protocol):
    """Keeps what is made of a mission's sorties while none of them is written."""

    def __call__(self, mission_id: str, make: Callable[[], K], /) -> K:
        """Return what is kept, else what ``make`` returns."""
        ...


class Tx:
    """One request's view of the store; a rule that raises rolls all of it back.

    ``run`` is for statements whose rows nobody needs. Effects happen only after COMMIT.
    """

    def __init__(
        self, execute: Execute, kept: Kept | None = None, repeat: Repeat | None = None
    ) -> None:
        self._execute = execute
        self._repeat = repeat
        self._kept = kept
        self._effects: dict[Effect, None] = {}
        self.log_end = 0
        """The position of the newest event as this transaction knows it; 0 when it does not."""
        self.changes: dict[str, Any] = {}
        """What changed in the states of missions and no event carries yet, by mission."""
        self.told: dict[str, int] = {}
        """The newest event of each mission that this transaction has written."""
        self.touched: dict[str, dict[Any, None]] = {}
        """The records whose history this transaction goes on with, by their tables."""

    def context(self, make: Callable[[], C]) -> C:
        """Return the context of the rule that runs: ``make``'s, or that of its first run."""
        return self._repeat.context(make) if self._repeat else make()

    @property
    def effects(self) -> list[Effect]:
        """Return what is to be done after COMMIT, in order, each once."""
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
        """Run a statement for what it does."""
        self._execute(sql, params)

    def many(self, sql: str, params: Iterable[Row], /) -> None:
        """Run a statement for what it does, once for each set of parameters, in their order."""
        self._execute.many(sql, params)
        if sql.startswith("INSERT INTO events"):
            self.log_end = 0  # nobody was told their positions

    def insert(self, table: str, columns: Row) -> None:
        """Write one row; the names of table and columns come from this program only."""
        names = ", ".join(columns)
        values = ", ".join(f":{name}" for name in columns)
        self._execute(f"INSERT INTO {table} ({names}) VALUES ({values})", columns)

    def of_sorties(self, mission_id: str, make: Callable[[], K]) -> K:
        """Return what ``make`` makes of a mission's sorties, kept while none of them is written.

        It is made each time where a store cannot tell that: where others write to it too.
        """
        return self._kept(mission_id, make) if self._kept else make()

    def after_commit(self, effect: Effect) -> None:
        """Have something done once this transaction is on disk, and only then."""
        self._effects[effect] = None

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        """End each statement inside that takes longer, with TookTooLong."""
        return self._execute.limited(most_ms)

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Undo everything that happens inside, also when nothing fails."""
        effects, end = self._effects.copy(), self.log_end
        changes, told, touched = self.changes, self.told.copy(), self.touched
        self.changes, self.touched = {}, {}
        self._execute("SAVEPOINT rehearsal", {})
        try:
            yield
        finally:
            self._execute("ROLLBACK TO rehearsal", {})
            self._execute("RELEASE rehearsal", {})
            self._effects, self.log_end = effects, end
            self.changes, self.told, self.touched = changes, told, touched

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo everything that happens inside if it raises, and raise that."""
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
