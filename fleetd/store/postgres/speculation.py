"""Speculation: a rule runs before its turn, on what the store holds now, and becomes a script.

The script has the statements of the rule, in its order. Where one returned rows, the server is to
compare those that it finds in the turn with those that the rule was given, and to end the
transaction where they differ: so what is decided is what the rule would have decided in its turn.

A rule usually runs twice. It runs first on guesses, to learn what it reads. One message reads all
of that, and the rule runs again on the answers. Further reads need another message.

Numbers that the store gives out (``Assigned``) are put in by the server. A rule that needs more of
them than to store and answer them is left to its turn, and so is whatever else cannot be foreseen.

Columns of activity are not compared (see ``expect`` in the schema): they are written all the time.
A rule that decides by them must not run here.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ...domain.core.assigned import Assigned, Counter, Unforeseen, encode_json, holds_assigned
from ...domain.core.tx import Effect, Repeat, Row, Tx
from ...protocol.errors import FleetError
from ..worker_thread import Job
from .connection import ServerConnection
from .statements import Call, PreparedStatements, numbered

_PREVIEW = "SELECT coalesce(json_agg(q), '[]')::text FROM (SQL) q"
_COMPARED = "SELECT expect((SELECT json_agg(q) FROM (SQL) q), EXPECTED)"
_WRITTEN = "WITH q AS (SQL) SELECT expect((SELECT json_agg(q) FROM q), EXPECTED)"

# Limits of one job: how often its rule runs, its statements, and the characters of their
# parameters. A rule that exceeds one runs in its turn. On guesses, a search for a free name could
# go on for ever.
_RUNS = 6
_STEPS = 300
_CHARACTERS = 500_000
# Longer answers are not remembered.
_KEPT_BYTES = 4_096
# After more failures in a row, tries are not spaced out further: 2 to the power of this.
_FAILURES = 6

Pairs = list[tuple[str, Any]]
"""A row, with its columns in their order."""
Key = tuple[str, tuple[Any, ...]]
"""A question: its SQL, and its parameters by the order of their names."""
PriorWrites = tuple[str, ...]
"""Statements of a rule that have written what it reads then."""
Corrections = dict[tuple[Job, str, PriorWrites], list[Pairs]]
"""What jobs that were refused would have read, by the question."""


class Shape(msgspec.Struct, frozen=True):
    """What a statement is: whether its rows are wanted, and how they are learned beforehand.

    ``question`` reads the rows that a statement will return; ``names`` are its parameters. Of an
    INSERT, ``columns`` names the parameters of each row that it returns. ``counter`` is what it
    counts up, of which it returns the numbers as ``column``.
    """

    kind: Literal["read", "write", "returning", "inserting", "counting", "unforeseen"]
    question: str = ""
    names: tuple[str, ...] = ()
    columns: tuple[tuple[tuple[str, str], ...], ...] = ()
    counter: Counter | None = None
    column: str = ""
    numbers: int = 0
    writes: str = ""
    """The table that a statement writes."""
    reads: frozenset[str] = frozenset()
    """The words of ``question``: tables that it reads are among them."""
    changed: bool = False
    """Whether the rows are told as they are changed, which only their absence foretells."""


_TOKEN = re.compile(
    r"'(?:[^']|'')*'|[()]|\b(?:WHERE|RETURNING|FROM|SET|VALUES|ON)\b", re.IGNORECASE
)
_WORD = re.compile(r"\w+")
_WRITES = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")


@lru_cache(maxsize=4_000)
def shape_of(sql: str) -> Shape:
    """Return what a statement of a rule is."""
    word = sql.lstrip().partition(" ")[0].upper()
    if word in ("SELECT", "WITH"):
        return Shape("read", sql, numbered(sql)[1], reads=frozenset(_WORD.findall(sql)))
    written = _WRITES.match(sql)
    if written is None:
        return Shape("unforeseen")
    return msgspec.structs.replace(_written(sql, word), writes=written[1])


def _written(sql: str, word: str) -> Shape:
    at = _clauses(sql)
    if "RETURNING" not in at:
        counts = word == "INSERT" and re.match(r"INSERT INTO (events|counters)\b", sql)
        return Shape("unforeseen" if counts else "write")
    returned = sql[at["RETURNING"] + len("RETURNING") :].strip()
    if word == "INSERT":
        return _inserting(sql, at, returned)
    where = sql[at["WHERE"] : at["RETURNING"]] if "WHERE" in at else ""
    table = sql[at["FROM"] + 4 : at["WHERE"]] if word == "DELETE" else sql[6 : at["SET"]]
    if word == "UPDATE" and "FROM" in at:
        return Shape("unforeseen")
    question = f"SELECT {returned} FROM {table.strip()} {where}"
    changed = word == "UPDATE" and "*" in returned
    reads = frozenset(_WORD.findall(question))
    return Shape("returning", question, numbered(question)[1], reads=reads, changed=changed)


def _clauses(sql: str) -> dict[str, int]:
    """Return where the clauses of a statement begin, the first of each outside of parentheses."""
    found: dict[str, int] = {}
    depth = 0
    for token in _TOKEN.finditer(sql):
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        elif not depth and token[0][0] != "'":
            found.setdefault(token[0].upper(), token.start())
    return found


def _inserting(sql: str, at: dict[str, int], returned: str) -> Shape:
    """Return what an INSERT is whose rows tell what they will be."""
    head = re.match(r"INSERT INTO (\w+) \(([^)]*)\) ", sql)
    if head is None or "VALUES" not in at:
        return Shape("unforeseen")
    table, columns = head[1], [each.strip() for each in head[2].split(",")]
    if table == "counters" and "'fencing'" in sql and returned == "value":
        return Shape("counting", counter="fencing", column="value", numbers=1)
    end = at.get("ON", at["RETURNING"])
    if "ON" in at and "DO NOTHING" not in sql[at["ON"] :]:
        return Shape("unforeseen")
    rows = _rows(sql[at["VALUES"] + len("VALUES") : end])
    if table == "events":
        if returned != "seq" or "seq" in columns:
            return Shape("unforeseen")
        return Shape("counting", counter="events", column="seq", numbers=len(rows))
    wanted = [each.strip() for each in returned.split(",")]
    told = []
    for row in rows:
        values = dict(zip(columns, row, strict=True)) if len(row) == len(columns) else {}
        if any(not re.fullmatch(r":\w+", values.get(each, "")) for each in wanted):
            return Shape("unforeseen")
        told.append(tuple((each, values[each][1:]) for each in wanted))
    return Shape("inserting", columns=tuple(told))


def _rows(values: str) -> list[list[str]]:
    """Return the values of each row of a VALUES list, as they are written."""
    rows: list[list[str]] = []
    depth, begin = 0, 0
    for at, sign in enumerate(values):
        if sign == "(":
            depth += 1
            if depth == 1:
                rows.append([])
                begin = at + 1
        elif sign in ",)" and depth == 1:
            rows[-1].append(values[begin:at].strip())
            begin = at + 1
        if sign == ")":
            depth -= 1
    return rows


class Step(msgspec.Struct, frozen=True):
    """A statement of a script; ``expected`` are the rows that its rule was given.

    ``own`` are the statements before it that have written what it reads.
    """

    sql: str
    params: Row
    expected: list[Pairs] | None
    key: Key
    own: PriorWrites


class _NotKnown(Exception):
    """A rule that only looks ahead wants to know what nobody can guess."""


class Attempt:
    """Runs a rule before its turn, and keeps what it did as a script.

    It stands for the connection on which rules run (``Execute``). ``known`` answers a question,
    given which statements of the rule have written what is asked for.
    """

    def __init__(self, known: Callable[[Key, PriorWrites], list[Pairs]]) -> None:
        self._known = known
        self._written: dict[str, list[str]] = {}
        self._characters = 0
        self.is_void = False
        """Whether something was refused here; a rule that goes on all the same has its turn."""
        self.steps: list[Step] = []
        self.counted: dict[Counter, int] = {}

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Note a statement; return its rows as dicts."""
        return [dict(row) for row in self._rows(sql, params)]

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Note a statement; return its rows as they come."""
        return [tuple(value for _, value in row) for row in self._rows(sql, params)]

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Note a statement for each set of parameters."""
        for each in params:
            self._rows(sql, each)

    def limited(self, most_ms: int) -> AbstractContextManager[None]:
        """Refuse: a limit holds for the statements of a turn."""
        self.is_void = True
        raise Unforeseen(f"a limit of {most_ms} ms")

    def _rows(self, sql: str, params: Row) -> list[Pairs]:
        try:
            return self._noted(sql, params)
        except Exception:
            self.is_void = True
            raise

    def _noted(self, sql: str, params: Row) -> list[Pairs]:
        shape = shape_of(sql)
        rows: list[Pairs] | None = None
        key: Key = (shape.question, tuple(params[name] for name in shape.names))
        own: PriorWrites = ()
        if shape.kind in ("read", "returning"):
            if any(isinstance(value, Assigned) for value in key[1]):
                raise Unforeseen("a number is looked for that is given at the commit")
            own = tuple(
                each
                for table in sorted(self._written.keys() & shape.reads)
                for each in self._written[table]
            )
            rows = self._known(key, own)
            if rows and shape.changed:
                raise Unforeseen(sql)
        elif shape.kind == "inserting":
            rows = [[(column, params[name]) for column, name in row] for row in shape.columns]
        elif shape.kind == "counting" and shape.counter is not None:
            rows = [[(shape.column, self._next(shape.counter))] for _ in range(shape.numbers)]
        elif shape.kind == "unforeseen":
            raise Unforeseen(sql)
        self._bound(params)
        self.steps.append(Step(sql, dict(params), rows, key, own))  # a rule may change its own
        if shape.writes:
            self._written.setdefault(shape.writes, []).append(sql)
        return rows or []

    def _bound(self, params: Row) -> None:
        self._characters += sum(len(each) for each in params.values() if isinstance(each, str))
        if len(self.steps) == _STEPS or self._characters > _CHARACTERS:
            raise Unforeseen("this is much for one message")

    def _next(self, counter: Counter) -> Assigned:
        place = self.counted[counter] = self.counted.get(counter, 0) + 1
        return Assigned(counter, place)


class Script(msgspec.Struct, frozen=True):
    """What a job wants committed: its statements, its result and what follows a commit.

    ``counted`` says how many numbers of each counter it needs. A job that refuses has an ``error``:
    its statements are compared, and nothing of them is kept.
    """

    job: Job
    steps: list[Step]
    calls: list[Call]
    counted: dict[Counter, int]
    value: Any = None
    effects: list[Effect] = []
    error: Exception | None = None


class _Backoff:
    """How often tries failed in a row at one place, and how many are left out for that."""

    __slots__ = ("failures", "skipped")

    def __init__(self) -> None:
        self.failures = self.skipped = 0


class Foresight:
    """What rules asked for lately, and what they were told: it says what they will ask for.

    Right or wrong, it decides only what is asked for in one message, and which tries are left out.
    """

    _MOST = 2_000

    def __init__(self) -> None:
        self._answers: OrderedDict[Key, list[Pairs]] = OrderedDict()
        self._own: OrderedDict[tuple[Key, PriorWrites], list[Pairs]] = OrderedDict()
        self._last: dict[str, list[Pairs]] = {}
        self._backoff: dict[tuple[str, PriorWrites], _Backoff] = {}

    def note(self, key: Key, rows: list[Pairs]) -> None:
        """Keep an answer."""
        self._answers[key] = self._last[key[0]] = rows
        self._answers.move_to_end(key)
        if len(self._answers) > self._MOST:
            self._answers.popitem(last=False)
        if len(self._last) > self._MOST:
            self._last.clear()

    def note_own(self, key: Key, own: PriorWrites, rows: list[Pairs]) -> None:
        """Keep what a rule would have read after it had written."""
        self._own[key, own] = rows
        if len(self._own) > self._MOST:
            self._own.popitem(last=False)

    def failed(self, question: str, own: PriorWrites) -> None:
        """Note that a rule read something else of what it had written than before the turn."""
        backoff = self._backoff.setdefault((question, own), _Backoff())
        backoff.failures = min(backoff.failures + 1, _FAILURES)
        backoff.skipped = 2**backoff.failures
        if len(self._backoff) > self._MOST:
            self._backoff.clear()

    def succeeded(self, steps: Sequence[Step]) -> None:
        """Note that a script was committed."""
        if self._backoff:
            for step in steps:
                if step.own:
                    self._backoff.pop((step.key[0], step.own), None)

    def backs_off(self, question: str, own: PriorWrites) -> bool:
        """Whether a try is not worth it, since the last ones failed here; sometimes it is again."""
        backoff = self._backoff.get((question, own))
        if backoff is None or not backoff.skipped:
            return False
        backoff.skipped -= 1
        return True

    def guess(self, key: Key) -> list[Pairs]:
        """Return what the answer may be: the last one to this question, else to one like it."""
        if (rows := self._answers.get(key)) is None and (rows := self._last.get(key[0])) is None:
            raise _NotKnown
        return rows

    def guess_own(self, key: Key, own: PriorWrites) -> list[Pairs] | None:
        """Return what the answer was the last time that a rule had written the same before."""
        return self._own.get((key, own))


class Speculation:
    """Makes scripts of jobs, on one connection."""

    def __init__(self, connection: ServerConnection, foresight: Foresight) -> None:
        self.connection = connection
        self._foresight = foresight
        self.statements = PreparedStatements(connection)

    def scripts(
        self, jobs: Sequence[Job], corrections: Corrections
    ) -> tuple[list[Script], list[Job]]:
        """Return the scripts of those jobs that can be foreseen, and the other jobs.

        ``corrections`` are of earlier tries. Raises psycopg.Error when the connection is gone.
        """
        runs = [_Run(job, Repeat(), corrections) for job in jobs]
        answers: dict[Key, list[Pairs] | None] = {}
        for _ in range(_RUNS):
            wanted: dict[Key, None] = {}
            for run in runs:
                if not run.done:
                    wanted |= run.once(self._foresight, answers)
            if not wanted:
                break
            self._ask([*wanted], answers)
        scripts = [script for run in runs if (script := self._script(run)) is not None]
        foreseen = {id(script.job) for script in scripts}
        return scripts, [job for job in jobs if id(job) not in foreseen]

    def _script(self, run: "_Run") -> Script | None:
        """Return the script of a run, None where it has to have its turn."""
        if not run.done:
            return None
        try:
            calls = [self._call(step) for step in run.attempt.steps]
            holds_assigned(run.value)  # once it is committed nothing may fail
        except Exception:  # noqa: BLE001 - such as a text that is no Unicode
            return None
        effects = [] if run.error else run.tx.effects
        steps, counted = run.attempt.steps, run.attempt.counted
        return Script(run.job, steps, calls, counted, run.value, effects, run.error)

    def _ask(self, keys: list[Key], answers: dict[Key, list[Pairs] | None]) -> None:
        """Ask the server, all in one message; None is the answer to what cannot be asked."""
        calls: dict[Key, Call] = {}
        for key in keys:
            params = dict(zip(numbered(key[0])[1], key[1], strict=True))
            try:
                calls[key] = self.statements.call(key[0], params, _PREVIEW)
            except Unforeseen:
                answers[key] = None
        try:
            self.statements.prepare()
        except Unforeseen:  # the next time it is known which one is refused
            answers.update(dict.fromkeys(keys))
            return
        if not calls:
            return
        text = "; ".join(call.text() for call in calls.values())
        results = self.connection.simple_query(text.encode())
        for key, result in zip(calls, results, strict=True):
            data = result.get_value(0, 0) or b"[]"
            rows = rows_of(data)
            # Of two columns of one name only one would be compared.
            answers[key] = rows if all(len(dict(row)) == len(row) for row in rows) else None
            if len(data) <= _KEPT_BYTES:
                self._foresight.note(key, rows)

    def _call(self, step: Step) -> Call:
        """Return a statement, which compares what it returns."""
        if step.expected is None:
            return self.statements.call(step.sql, step.params)
        form = _COMPARED if shape_of(step.sql).kind == "read" else _WRITTEN
        rows = encode_json([dict(row) for row in step.expected]).decode()
        return self.statements.call(step.sql, step.params, form, rows)

    def committed(self, scripts: Iterable[Script]) -> None:
        """Note that scripts were committed."""
        for script in scripts:
            self._foresight.succeeded(script.steps)

    def learn(
        self, script: Script, place: int, found: str | None, corrections: Corrections
    ) -> bool:
        """Keep what the ``place``-th statement of a script found; whether a new try may succeed.

        What a rule reads of its own writes is not there before they are.
        """
        step = script.steps[place]
        if not step.own:
            return True
        correction = (script.job, step.key[0], step.own)
        self._foresight.failed(step.key[0], step.own)
        if found is None or len(found) > _KEPT_BYTES or correction in corrections:
            return False
        corrections[correction] = rows = rows_of(found)
        self._foresight.note_own(step.key, step.own, rows)
        return True


class _Run:
    """A job that runs before its turn, until all that it asks for is known."""

    def __init__(self, job: Job, repeat: Repeat, corrections: Corrections) -> None:
        self.job = job
        self._repeat = repeat
        self._corrections = corrections
        self.done = False
        """Whether it came to an end, by what the store holds."""

    def once(
        self, foresight: Foresight, answers: Mapping[Key, list[Pairs] | None]
    ) -> dict[Key, None]:
        """Run the job; return what it asked for that has no answer, where it went on by guesses."""
        wanted: dict[Key, None] = {}

        def known(key: Key, own: PriorWrites) -> list[Pairs]:
            if own:
                correction = self._corrections.get((self.job, key[0], own))
                learned = foresight.guess_own(key, own) if correction is None else correction
                if learned is not None:
                    return learned
                if foresight.backs_off(key[0], own):
                    raise Unforeseen("such a rule reads what it has written")
            if key in answers:
                if (rows := answers[key]) is None:
                    raise Unforeseen("this cannot be asked before the turn")
                return rows
            wanted[key] = None
            return foresight.guess(key)

        self.attempt = Attempt(known)
        self.tx = Tx(self.attempt, repeat=self._repeat)
        self.value: Any = None
        self.error: Exception | None = None
        ended = True
        try:
            self.value = self.job.run(self.tx)
        except (FleetError, AssertionError) as refusal:
            self.error = refusal
        except Exception:  # noqa: BLE001 - a wrong guess, or a sum with a number that is not known
            ended = False
        self.done = ended and not wanted and not self.attempt.is_void
        return wanted


def rows_of(text: str | bytes) -> list[Pairs]:
    """Return rows that the server tells as JSON, with their columns in order."""
    rows: list[Pairs] = json.loads(text, object_pairs_hook=list)
    return rows
