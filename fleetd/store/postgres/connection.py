"""Connections to PostgreSQL: their settings, a deadline for every answer, statements of the rules.

libpq waits for an answer as long as the kernel keeps the connection: minutes if the network drops
everything, for ever if the server hangs.

Every column is TEXT or BIGINT, and so is every parameter: the server has no types to infer.
"""

import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, TypeVar, cast

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import dict_row, tuple_row
from psycopg.types.numeric import FloatDumper, Int8Dumper
from psycopg.types.string import StrDumper

from ...domain.core.text import NUL, SIGN_OF_NUL
from ...domain.core.tx import Row, TookTooLong
from .errors import ServerAway, Stalled, TurnTooLate, is_final, server_message
from .url import format_url, parse

T = TypeVar("T")
# The longest wait for an answer. It is longer than the server's own limits (see _SETTINGS), so a
# slow statement ends with an error of the server, and the connection remains.
TIMEOUT_S = 9.0
# The server's limit for a statement, unless another one was set.
STATEMENT_MS = 8_000
# The longest wait for a table that another program has locked.
TABLE_MS = 6_000
# The longest wait for a queue, for the turn, and for both. A long queue means a long wait, and a
# daemon that gives up is last in the queue again.
LOCK_MS = 30_000
TURN_MS = 2 * LOCK_MS
HURRIED_S = 2.0
# The time between two questions of an idle daemon to its server. Without an answer it is away.
HEARTBEAT_S = 10.0
# The time between two checks of the deadline during a wait.
_POLL_S = 0.25


class Hurry:
    """Whether everything has to end soon, and when a connection of the store was answered last."""

    def __init__(self) -> None:
        self.now = False
        self.answered = 0.0
        """When any of them had an answer last, by the monotonic clock."""


class ServerConnection(psycopg.Connection[Any]):
    """A connection of which every answer has a deadline."""

    timeout_s = TIMEOUT_S
    hurry = Hurry()
    backend = (0, 0.0, 0.0)
    """The process at the server, a time when it was there, and when the server was started.

    Times are in seconds since the Unix epoch, by the server.
    """

    queueing = False
    """Whether an answer may take as long as the queue is, while others do get theirs."""

    @cached_property
    def executor(self) -> "PostgresExecutor":
        """What rules run their statements with here."""
        return PostgresExecutor(self)

    def simple_query(self, text: bytes) -> list[PGresult]:
        """Send statements without parameters as one message; return what each came to.

        Beside psycopg's cursors, which forget all that is prepared whenever one rolls back.
        """
        results = self.outcomes(text)
        if results[-1].status == ExecStatus.FATAL_ERROR:
            raise error_from_result(results[-1])
        return results

    def outcomes(self, text: bytes) -> list[PGresult]:
        """Do the same, where the last may be an error of the server: of the one that failed."""
        with self.lock:
            self.pgconn.send_query(text)
            results: list[PGresult] = self.wait(execute(self.pgconn))
        return results

    def wait(self, gen: Generator[Any, Any, T], interval: float = _POLL_S, *_: Any) -> T:
        """Wait for an answer; raises Stalled, and hangs up, when there is none in time."""
        try:
            value: T = super().wait(self._with_deadline(gen), min(interval, _POLL_S))
        except Stalled:
            self.close()  # nobody could tell a late answer from that to the next question
            raise
        self.hurry.answered = time.monotonic()
        return value

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Wait for a turn for as long as the server is there."""
        self.queueing = True
        try:
            yield
        finally:
            self.queueing = False

    def _with_deadline(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        begun = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready:
                    self._check_deadline(time.monotonic() - begun)
                state = gen.send(ready)
        except StopIteration as end:
            return cast("T", end.value)

    def _check_deadline(self, waited_s: float) -> None:
        timeout_s = min(self.timeout_s, HURRIED_S) if self.hurry.now else self.timeout_s
        if waited_s <= timeout_s:
            return
        if not self._still_queued(waited_s, timeout_s):
            raise Stalled(f"no answer for {waited_s:.0f} s")
        if self.hurry.now:
            raise TurnTooLate(f"its turn did not come within {waited_s:.0f} s")

    def _still_queued(self, waited_s: float, timeout_s: float) -> bool:
        if not self.queueing or waited_s > TURN_MS / 1_000 + timeout_s:
            return False
        # It must not lose its place for want of other questions: who comes back is last, and its
        # new connection costs the others more than its wait.
        return time.monotonic() - self.hurry.answered < HEARTBEAT_S + timeout_s

    @contextmanager
    def without_timeout(self, seconds: float) -> Iterator[None]:
        """Be patient with work that takes as long as there is data."""
        self.execute(b"SET statement_timeout = 0")
        self.timeout_s = seconds
        try:
            yield
        finally:
            del self.timeout_s  # what it was is the class's
            if not self.closed:
                self.execute(f"SET statement_timeout = {STATEMENT_MS}".encode())


# A text, a name in quotes and a comment stay as they are, whatever is in them; two colons are
# a cast.
PART = re.compile(
    r"'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|--[^\n]*"
    r"|/\*.*?\*/"
    r"|::"
    r"|:([a-z_][a-z0-9_]*)"
    r"|%",
    re.IGNORECASE | re.DOTALL,
)
# Rows of one message, of which a transaction may have several.
_ROWS_AT_ONCE = 200
# A rehearsal's: psycopg would forget all that is prepared when it sees one rolled back.
_FRAMES = ("SAVEPOINT", "ROLLBACK", "RELEASE")


@lru_cache(maxsize=2_000)
def translated(sql: str) -> str:
    """Return a statement with ``%(name)s`` where it has ``:name``."""
    return PART.sub(_placed, sql)


def _placed(match: re.Match[str]) -> str:
    if match[1]:
        return f"%({match[1]})s"
    return match[0].replace("%", "%%")


class _Text(StrDumper):
    """A text; what is asked for may have a NUL in it, which PostgreSQL holds in none."""

    def dump(self, obj: str) -> Buffer | None:
        """Return its bytes."""
        return super().dump(obj.replace(NUL, SIGN_OF_NUL) if NUL in obj else obj)


class _Integer(Int8Dumper):
    """A number; in a literal, a cast binds closer than the sign."""

    def quote(self, obj: int) -> Buffer:
        """Return its digits."""
        return str(obj).encode() if obj >= 0 else f"({obj})".encode()


class _Truth(Dumper):
    """A truth value, which is 0 or 1 in every column."""

    oid = psycopg.adapters.types["int8"].oid

    def dump(self, obj: bool) -> Buffer | None:
        """Return its digit."""
        return b"1" if obj else b"0"

    def quote(self, obj: bool) -> Buffer:
        """Return its digit: it is a number in a literal, too."""
        return b"1" if obj else b"0"


class _Number(Loader):
    """A sum, which is a numeric here and an integer there."""

    def load(self, data: Buffer) -> int | float:
        """Return it as Python counts."""
        text = bytes(data).decode("ascii")
        return float(text) if "." in text else int(text)


class _Unconnected:
    """Stands for a connection where values are only written down."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)


def literal_writer() -> Callable[[Any], Buffer]:
    """Return what writes a value down as SQL, as a connection of ours would."""
    context = _Unconnected()
    adapt(context)
    write: Callable[[Any], Buffer] = Transformer(context).as_literal
    return write


def adapt(context: AdaptContext) -> None:
    """Have a connection pass values as the rules know them."""
    adapters = context.adapters
    adapters.register_dumper(str, _Text)
    adapters.register_dumper(int, _Integer)
    adapters.register_dumper(bool, _Truth)
    adapters.register_dumper(float, FloatDumper)
    adapters.register_loader("numeric", _Number)


class PostgresExecutor:
    """Runs statements with named parameters, on one connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._dicts = connection.cursor(row_factory=dict_row)
        self._tuples = connection.cursor(row_factory=tuple_row)
        self._literals = psycopg.ClientCursor(connection)

    def __call__(self, sql: str, params: Row) -> list[Row]:
        """Run a statement and return its rows as dicts."""
        if not params and sql.startswith(_FRAMES):
            self._connection.simple_query(sql.encode())
            return []
        self._dicts.execute(translated(sql), params)
        return self._dicts.fetchall() if self._dicts.description else []

    @contextmanager
    def limited(self, most_ms: int) -> Iterator[None]:
        """End each statement inside after so long, with TookTooLong."""
        self._connection.simple_query(f"SET LOCAL statement_timeout = {most_ms:d}".encode())
        try:
            yield
        except psycopg.errors.QueryCanceled as error:
            raise TookTooLong from error
        self._connection.simple_query(f"SET LOCAL statement_timeout = {STATEMENT_MS}".encode())

    def tuples(self, sql: str, params: Row) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as they come."""
        self._tuples.execute(translated(sql), params)
        return self._tuples.fetchall() if self._tuples.description else []

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns that ``tuples`` last returned."""
        return [each.name for each in self._tuples.description or ()]

    def many(self, sql: str, params: Iterable[Row]) -> None:
        """Run a statement once for each set of parameters, several in one message.

        Not in a pipeline, as psycopg's cursors would: one of which a half arrives keeps the fleet's
        turn, and no timeout of the server ends it.
        """
        rows, statement = iter(params), translated(sql)
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            texts = [self._literals.mogrify(statement, each).encode() for each in some]
            self._connection.simple_query(b"; ".join(texts))


CONNECT_S = 5
OLDEST = 13
_SECOND = 1_000
# Both ends notice a network that is gone without a reset after eleven seconds.
_IDLE_S, _INTERVAL_S, _COUNT = 5, 2, 3
_UNANSWERED_MS = 10 * _SECOND
_OWN = {
    "connect_timeout": CONNECT_S,
    "client_encoding": "UTF8",
    "keepalives_idle": _IDLE_S,
    "keepalives_interval": _INTERVAL_S,
    "keepalives_count": _COUNT,
    "tcp_user_timeout": _UNANSWERED_MS,
}
# Keepalives: the server's default is two hours, and a machine that vanishes in the middle of a
# message may have the turn. Each of the other limits is shorter than the next. A client that idles
# in a transaction loses it before those that wait for it give up. The server cancels a statement
# before the client drops the connection. The wait for the turn has its own limits (see batch.py).
# A limit for idle sessions would end connections of a daemon without work, again and again. A limit
# for transactions (PostgreSQL 17) may be shorter than the wait for the turn.
_SETTINGS = f"""
    SET idle_in_transaction_session_timeout = {4 * _SECOND};
    SET lock_timeout = {TABLE_MS};
    SET statement_timeout = {STATEMENT_MS};
    SET jit = off;
    SET tcp_keepalives_idle = {_IDLE_S};
    SET tcp_keepalives_interval = {_INTERVAL_S};
    SET tcp_keepalives_count = {_COUNT};
    SET tcp_user_timeout = {_UNANSWERED_MS};
    SET standard_conforming_strings = on;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
    SELECT set_config(name, '0', false)
        FROM (VALUES ('idle_session_timeout'), ('transaction_timeout')) AS limits (name)
        WHERE current_setting(name, true) <> '0';
    SELECT current_setting('server_encoding'), current_schema(),
        CASE WHEN pg_is_in_recovery() THEN 'it is a standby'
            WHEN current_setting('transaction_read_only')::boolean
            THEN 'default_transaction_read_only is on, and it is no standby' END,
        pg_backend_pid(), extract(epoch FROM clock_timestamp())::float8,
        extract(epoch FROM pg_postmaster_start_time())::float8
""".encode()
# Rules are few and run all the time: each is planned once for a connection.
_PREPARE_AFTER = 1
_PREPARED_MAX = 1_000


def connect(url: str, purpose: str) -> ServerConnection:
    """Open a connection; ``purpose`` is what the server's own lists call it.

    Raises StoreRefused for a URL that is none, ServerAway for a server that cannot be used.
    """
    given = parse(url)
    try:
        connection = ServerConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=_PREPARE_AFTER,
            **_added(given, f"fleetd {purpose}"),
        )
    except psycopg.Error as error:
        message = _without(server_message(error), given)
        raise ServerAway("connecting", message, final=is_final(str(error))) from None
    connection.prepared_max = _PREPARED_MAX
    try:
        adapt(connection)
        _set(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _added(given: Mapping[str, Any], purpose: str) -> dict[str, Any]:
    """Return what we think best where nobody wrote anything else."""
    ours: dict[str, Any] = _OWN | {"application_name": purpose}
    several = "," in str(given.get("host") or os.environ.get("PGHOST", ""))
    if several and "PGTARGETSESSIONATTRS" not in os.environ:
        ours["target_session_attrs"] = "read-write"
    return {name: value for name, value in ours.items() if name not in given}


def _without(text: str, given: Mapping[str, Any]) -> str:
    """Return a text without any secret of the URL, should libpq ever show one."""
    for name in ("password", "sslpassword", "oauth_client_secret"):
        if secret := str(given.get(name) or ""):
            text = text.replace(secret, "***")
    return text


def _set(connection: ServerConnection) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        why = f"it is PostgreSQL {version}, and fleetd needs {OLDEST} or newer"
        raise ServerAway("connecting", why, final=True)
    try:
        cursor = connection.execute(_SETTINGS, prepare=False)
    except psycopg.Error as error:
        raise ServerAway("connecting", server_message(error)) from None
    while cursor.nextset():
        pass
    row = cursor.fetchone() or ("UTF8", "", None, 0, 0.0, 0.0)
    encoding, schema, read_only, *backend = row
    connection.backend = tuple(backend)
    if encoding != "UTF8":
        why = f"the database's encoding is {encoding}, and fleetd needs UTF8"
        raise ServerAway("connecting", why, final=True)
    if schema is None:
        why = "there is no schema that its search_path names, or none that the role may use"
        raise ServerAway("connecting", why, final=True)
    if read_only:
        raise ServerAway("connecting", f"it is read-only: {read_only}")


def name_of(connection: ServerConnection) -> str:
    """Return what the server at the other end of a connection is called."""
    info = connection.info
    return format_url(info.user, info.host, str(info.port), info.dbname)


def shown_version(connection: ServerConnection) -> str:
    """Return the server's name and version, as in ``PostgreSQL 15.18``."""
    number = connection.info.parameter_status("server_version") or str(
        connection.info.server_version
    )
    return f"PostgreSQL {number.split(' ')[0]}"
