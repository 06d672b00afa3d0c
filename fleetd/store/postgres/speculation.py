"""Speculation: a rule runs before its turn, on the present rows of the store, and becomes a script.

The script has the statements of the rule, in its order. Where the rule was given rows of the store,
the server compares them in the turn with those that it finds, and ends the transaction if they
differ. So the decision is the one that the rule would have made in its turn. The result of an
INSERT is known without the store.

A rule runs first on guesses, to learn its reads. One message asks for all of them, except those
that were predicted right many times in a row. If a guess was wrong, the rule runs again on the
answers. Further reads need another message.

The server inserts the numbers that the store gives out (``Assigned``). A rule that does more with
them than store and return them waits for its turn, and so does a rule that cannot be predicted.

Columns of activity are not compared (see ``expect`` in the schema), as they change all the time. A
rule that decides by them must not run here.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ...domain.core.assigned import Assigned, Counter, Unpredictable, encode_json, holds_assigned
from ...domain.core.tx import Effect, Repeat, Row, Tx
from ...protocol.errors import FleetError
from ..worker_thread import Job
from .connection import ServerConnection
from .predictor import (
    Key,
    OwnWrites,
    Pairs,
    Predictor,
    PriorWrites,
    ReadAfter,
    is_short,
    read_after,
)
from .shape import shape_of
from .statements import Call, PreparedStatements, numbered

_PREVIEW = "SELECT coalesce(json_agg(q), '[]')::text FROM (SQL) q"
# Most rows have exactly the expected text. Only the others are compared by value. The server merges
# the two aggregates into one only for plain columns: OFFSET keeps the expressions of a query apart.
_UNLIKE = (
    "SELECT expect(json_agg(q), EXPECTED::jsonb) FROM {}"
    " HAVING coalesce(json_agg(q)::text, '[]') <> EXPECTED"
)
_COMPARED = _UNLIKE.format("(SELECT * FROM (SQL) AS stored OFFSET 0) AS q")
_WRITTEN = f"WITH q AS (SQL) {_UNLIKE.format('q')}"

# Limits of one job: runs of its rule, statements, and characters of parameters and rows. A rule
# that exceeds one runs in its turn, which helps to predict the next one. On guesses, a search for a
# free name could go on for ever.
_RUNS = 6
_STEPS = 300
_CHARACTERS = 500_000

Corrections = dict[tuple[Job, ReadAfter], list[Pairs]]
"""What refused jobs would have read of their own writes."""


class Step(msgspec.Struct, frozen=True):
    """A statement of a script; ``expected`` are the rows of the store that its rule was given.

    ``own`` are the earlier statements of the rule that wrote what it reads.
    """

    sql: str
    params: Row
    expected: list[Pairs] | None
    key: Key
    own: PriorWrites


class Attempt:
    """Runs a rule before its turn, and records its statements as a script.

    The rule uses it in place of a connection (``Execute``). ``known`` answers a question, given the
    statements of the rule that wrote what it asks for.
    """

    def __init__(self, known: Callable[[Key, PriorWrites], list[Pairs]]) -> None:
        self._known = known
        self.own = OwnWrites()
        self.is_void = False
        """Whether a statement was refused; a rule that caught the error needs its turn."""
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
        raise Unpredictable(f"a limit of {most_ms} ms")

    def _rows(self, sql: str, params: Row) -> list[Pairs]:
        try:
            return self._noted(sql, params)
        except Exception:
            self.is_void = True
            raise

    def _noted(self, sql: str, params: Row) -> list[Pairs]:
        shape = shape_of(sql)
        rows: list[Pairs] | None = None
        key = shape.key(params)
        own: PriorWrites = ()
        if shape.kind in ("read", "returning"):
            if Assigned in map(type, key[1]):
                raise Unpredictable("a number is looked for that is given at the commit")
            own = self.own.read_by(shape)
            rows = self._known(key, own)
            if rows and shape.changed:
                raise Unpredictable(sql)
        elif shape.kind == "inserting":
            rows = [[(column, params[name]) for column, name in row] for row in shape.columns]
        elif shape.kind == "counting" and shape.counter is not None:
            rows = [[(shape.column, self._next(shape.counter))] for _ in range(shape.numbers)]
        elif shape.kind == "unpredictable":
            raise Unpredictable(sql)
        if len(self.steps) == _STEPS:
            raise Unpredictable("these are many statements for one message")
        given = dict(params)  # a rule may change its own
        self.own.note(shape, sql, given)
        if shape.sent and rows:
            numbers = {f"number{at}": rows[at][0][1] for at in range(shape.numbers)}
            self.steps.append(Step(shape.sent, given | numbers, None, key, own))
        else:
            self.steps.append(Step(sql, given, rows, key, own))
        return rows or []

    def _next(self, counter: Counter) -> Assigned:
        place = self.counted[counter] = self.counted.get(counter, 0) + 1
        return Assigned(counter, place)


class Script(msgspec.Struct, frozen=True):
    """What a job commits: its statements, its result, and the effects after the commit.

    ``counted`` says how many numbers of each counter it needs. A job that refuses has an ``error``:
    its statements are compared and rolled back. ``sure`` are the questions that it did not ask, and
    ``before`` the rows of the store that it was given, without its own writes.
    """

    job: Job
    steps: list[Step]
    calls: list[Call]
    counted: dict[Counter, int]
    own: OwnWrites
    sure: Container[Key] = ()
    before: Mapping[Key, list[Pairs]] = {}
    value: Any = None
    effects: list[Effect] = []
    error: Exception | None = None


class Speculation:
    """Makes scripts of jobs, on one connection."""

    def __init__(self, connection: ServerConnection, predictor: Predictor) -> None:
        self.connection = connection
        self._predictor = predictor
        self.statements = PreparedStatements(connection)

    def scripts(
        self, jobs: Sequence[Job], corrections: Corrections, *, trusting: bool
    ) -> tuple[list[Script], list[Job]]:
        """Return the scripts of those jobs that can be predicted, and the other jobs.

        ``corrections`` are of earlier tries. ``trusting`` leaves out what need not be asked for.
        Raises psycopg.Error when the connection is gone.
        """
        answers: dict[Key, list[Pairs] | None] = {}
        runs = [_Run(job, self._predictor, corrections, answers, trusting=trusting) for job in jobs]
        for _ in range(_RUNS):
            wanted: dict[Key, None] = {}
            for run in runs:
                if not run.done:
                    wanted |= dict.fromkeys(run.once())
            if not wanted:
                break
            self._ask([*wanted], answers)
            for run in runs:
                run.confirm()
        scripts = [script for run in runs if (script := self._script(run)) is not None]
        predicted = {id(script.job) for script in scripts}
        return scripts, [job for job in jobs if id(job) not in predicted]

    def _script(self, run: "_Run") -> Script | None:
        """Return the script of a run, None where it has to have its turn."""
        if not run.done:
            return None
        calls: list[Call] = []
        size = 0
        try:
            for step in run.attempt.steps:
                calls.append(self._call(step))
                size += calls[-1].size
                if size > _CHARACTERS:
                    return None
            holds_assigned(run.value)  # once it is committed nothing may fail
        except Exception:  # noqa: BLE001 - such as a text that is no Unicode
            return None
        effects = [] if run.error else run.tx.effects
        return Script(
            run.job,
            run.attempt.steps,
            calls,
            run.attempt.counted,
            run.attempt.own,
            sure=run.sure,
            before=run.before,
            value=run.value,
            effects=effects,
            error=run.error,
        )

    def _ask(self, keys: list[Key], answers: dict[Key, list[Pairs] | None]) -> None:
        """Ask the server, all in one message; None is the answer to what cannot be asked."""
        calls: dict[Key, Call] = {}
        size = 0
        for key in keys:
            params = dict(zip(numbered(key[0])[1], key[1], strict=True))
            try:
                calls[key] = self.statements.call(key[0], params, _PREVIEW)
            except Unpredictable:
                answers[key] = None
                continue
            size += calls[key].size
            if size > _CHARACTERS:
                answers[key] = None
                del calls[key]
        try:
            results = self.statements.run(calls.values())
        except Unpredictable:  # the next time it is known which one is refused
            answers.update(dict.fromkeys(keys))
            return
        for key, result in zip(calls, results, strict=True):
            data = result.get_value(0, 0) or b"[]"
            rows = rows_of(data)
            # Of two columns of one name only one would be compared.
            if any(len(dict(row)) < len(row) for row in rows):
                answers[key] = None
                continue
            answers[key] = rows
            if is_short(rows):
                self._predictor.note(key, rows)

    def _call(self, step: Step) -> Call:
        """Return a statement, which compares what it returns."""
        if step.expected is None:
            return self.statements.call(step.sql, step.params)
        form = _COMPARED if shape_of(step.sql).kind == "read" else _WRITTEN
        rows = encode_json([dict(row) for row in step.expected]).decode()
        return self.statements.call(step.sql, step.params, form, rows)

    def committed(self, script: Script, before: Mapping[Counter, int]) -> None:
        """Note that a script was committed, given the counters before it."""
        if script.error is None:
            for step in script.steps:
                if step.own:
                    self._predictor.succeeded(step.key, step.own)
                elif step.expected is not None and step.key[0]:
                    writes = script.own.read_by(shape_of(step.sql), before)
                    self._predictor.committed(step.key, step.expected, writes)

    def learn(
        self, script: Script, place: int, found: str | None, corrections: Corrections
    ) -> bool:
        """Keep what the ``place``-th statement of a script found; whether a new try may succeed.

        A rule's own writes cannot be read before they are made.
        """
        step = script.steps[place]
        if not step.own or step.key in script.sure:
            self._predictor.missed(step.key)
            return True
        rows = None if found is None else rows_of(found)
        rows = rows if rows is not None and is_short(rows) else None
        before = script.before.get(step.key, [])
        self._predictor.failed(step.key, step.own, before, rows)
        correction = (script.job, read_after(step.key, step.own))
        if rows is None or correction in corrections:
            return False
        corrections[correction] = rows
        return True


class _Run:
    """A job that runs before its turn, until all its questions have answers.

    ``answers`` are those of the store; None for a question that it cannot answer.
    """

    def __init__(
        self,
        job: Job,
        predictor: Predictor,
        corrections: Corrections,
        answers: Mapping[Key, list[Pairs] | None],
        *,
        trusting: bool,
    ) -> None:
        self.job = job
        self.done = False
        """Whether it ended on the rows of the store, without guesses."""
        self.sure: set[Key] = set()
        """The questions that it did not ask, as their answers are predicted surely."""
        self.before: dict[Key, list[Pairs]] = {}
        """The rows of the store that it was given, without its own writes."""
        self._repeat = Repeat()
        self._predictor = predictor
        self._corrections = corrections
        self._answers = answers
        self._trusting = trusting
        self._guesses: dict[Key, list[Pairs] | None] = {}
        """Its guesses for questions without an answer; None where there is no guess."""

    def once(self) -> Iterable[Key]:
        """Run the job; return its questions without an answer, for which it had guesses."""
        self._guesses = {}
        self.before = {}
        self.attempt = Attempt(self._known)
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
        self._ended = ended and not self.attempt.is_void
        self.done = self._ended and not self._guesses
        return self._guesses

    def confirm(self) -> None:
        """Be done if all guesses equal the answers."""
        if self._ended and all(self._answers[key] == rows for key, rows in self._guesses.items()):
            self.done = True

    def _known(self, key: Key, own: PriorWrites) -> list[Pairs]:
        """Return the answer to a question, or a guess."""
        if own:
            correction = self._corrections.get((self.job, read_after(key, own)))
            if correction is not None:
                return correction
            if self._predictor.backs_off(key, own):
                raise Unpredictable("such a rule reads what it has written")
        rows = self.before[key] = self._stored(key)
        return self._predictor.guess_own(key, own, rows) if own else rows

    def _stored(self, key: Key) -> list[Pairs]:
        """Return what the store holds, or a guess."""
        if key in self._answers:
            if (rows := self._answers[key]) is None:
                raise Unpredictable("this cannot be asked before the turn")
            return rows
        if self._trusting and (sure := self._predictor.trusted(key)) is not None:
            self.sure.add(key)
            return sure
        self._guesses[key] = None
        self._guesses[key] = guess = self._predictor.guess(key)
        return guess


def rows_of(text: str | bytes) -> list[Pairs]:
    """Return rows that the server tells as JSON, with their columns in order."""
    rows: list[Pairs] = json.loads(text, object_pairs_hook=list)
    return rows
