"""Commit signal: notifies other daemons of this one's commits, and listens for theirs.

A NOTIFY inside of the transaction would serialize all commits of the server, each with its sync to
disk, and wake every listener of the database. So a daemon notifies after its commits, a few times a
second, and listens only while a client follows. All daemons that listen share a lock; if nobody
holds it, nobody is notified. A notification that is lost, as by a killed daemon, is made up for by
a look at the log.

Anybody who may connect to the database may send notifications with any payload. So a notification
only causes a look.
"""

import contextlib
import math
import os
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg
import trio

from ..api import Followers
from .batch import LISTENERS, PATIENTLY
from .connection import HEARTBEAT_S, ServerConnection
from .server import PostgresServer

# The channel is the schema's own, as the lock of the writers is.
CHANNEL = "'fleet_events_' || current_schema()::regnamespace::oid"
_NAME = f"SELECT {CHANNEL}"
_PREPARE = f"PREPARE notify_commit AS SELECT pg_notify({CHANNEL}, '')".encode()
# It only notifies, so it needs no sync to disk.
_NOTIFY = b"SET LOCAL synchronous_commit = off; EXECUTE notify_commit"
# It waits until the current turn ends. The next turn finds the lock taken.
_LISTEN = "; ".join((*PATIENTLY, f"SELECT pg_advisory_lock_shared({LISTENERS})", 'LISTEN "%s"'))
_UNLISTEN = f"UNLISTEN *; SELECT pg_advisory_unlock_shared({LISTENERS})".encode()
# The shortest time between two notifications.
NOTIFY_S = 0.05
# The shortest time between two looks at the log's end that notifications cause.
_FOLLOW_S = 0.25
# The time between two looks without notifications, while a client follows or has read.
LOOK_S = 1.0

OnThread = Callable[[Callable[[ServerConnection], int]], Awaitable[int]]


class NotificationListener:
    """Waits for notifications on a connection that listens."""

    def __init__(self, connection: ServerConnection, on_notice: Callable[[int], None]) -> None:
        self._connection = connection
        self._on_notice = on_notice
        # A duplicate: libpq closes its descriptor when the server goes, and trio must not wait for
        # a number that means another file by then.
        self._descriptor = os.dup(connection.fileno())

    async def wait(self) -> None:
        """Wait for a notification; raises psycopg.Error once the server is gone."""
        # What came right behind an answer is read already.
        if self._drain():
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.wait_readable(self._descriptor)
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        self._drain()
        if pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")

    def _drain(self) -> bool:
        """Pass on the received notifications; return whether there were any."""
        received = False
        while (notice := self._connection.pgconn.notifies()) is not None:
            self._on_notice(notice.be_pid)
            received = True
        return received

    def close(self) -> None:
        """Let go of the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class CommitSignal:
    """Notifies, listens and looks on one connection; calls ``on_commits`` after others' commits.

    All methods but ``take`` belong to the trio thread.
    """

    def __init__(
        self, server: PostgresServer, on_commits: Callable[[], None], followers: Followers
    ) -> None:
        self.on_commits = on_commits
        self._server = server
        self._followers = followers
        followers.on_arrival = self._arrived
        self._wait_scope: trio.CancelScope | None = None
        self._listen = b""
        self._pid = 0
        self._listening = False
        self._followed = False
        """Whether anybody has begun to follow since the last heartbeat."""
        self._pending = False
        self._unnotified = False
        """Whether others must still be notified of a commit."""
        self._notify_at = self._beat_at = self._looked_at = 0.0
        self._look_at = math.inf
        self._end = 0
        """How far the log had come at the last look."""

    def take(self, connection: ServerConnection) -> None:
        """Make a connection ready, on whatever thread; raises psycopg.Error."""
        row = connection.execute(_NAME).fetchone()
        self._listen = (_LISTEN % (row[0] if row else "")).encode()
        connection.simple_query(_PREPARE)
        self._pid, *_ = connection.backend  # a pooler in between reports another one
        # What arrives while something else is asked.
        connection.add_notify_handler(lambda notice: self._on_notification(notice.pid))

    def committed(self) -> None:
        """Notify other machines soon that this one has committed."""
        self._unnotified = True
        self._wake()

    def was_read(self) -> None:
        """Look soon how far the log has come, once somebody has read.

        What is read must not be unknown here when a server without it takes the place of this one.
        """
        if self._look_at == math.inf:
            self._look_at = trio.current_time() + LOOK_S
            self._wake()

    def _arrived(self) -> None:
        self._followed = True
        if not self._listening:
            self._wake()

    def _wake(self) -> None:
        if self._wait_scope is not None:
            self._wait_scope.cancel()

    async def attend(self, connection: ServerConnection, on_thread: OnThread) -> None:
        """Notify, listen and look until cancelled; raises psycopg.Error once the server is gone."""
        listener = NotificationListener(connection, self._on_notification)
        begun = trio.current_time()
        self._beat_at, self._look_at = begun + HEARTBEAT_S, begun + LOOK_S
        # Commits without a connection were not notified.
        self._listening, self._unnotified = False, True
        self._end = 0
        try:
            while True:
                await self._wait_until_due(listener)
                await self._act(on_thread)
        finally:
            listener.close()

    async def _wait_until_due(self, listener: NotificationListener) -> None:
        """Pass on notifications until our next notification, look or heartbeat is due."""
        while True:
            with trio.CancelScope(deadline=self._due_at()) as self._wait_scope:
                await listener.wait()
            self._wait_scope = None
            if self._pass_on():
                self._look_at = min(self._look_at, self._looked_at + _FOLLOW_S)
            if self._due_at() <= trio.current_time():
                return

    def _due_at(self) -> float:
        if self._followers.number and not self._listening:
            return -math.inf
        due = min(self._beat_at, self._look_at)
        return min(due, self._notify_at) if self._unnotified else due

    async def _act(self, on_thread: OnThread) -> None:
        """Do what is due, in one visit to a thread."""
        now = trio.current_time()
        notify, beat = self._unnotified and now >= self._notify_at, now >= self._beat_at
        look = beat or now >= self._look_at
        listen = self._listens(beat=beat)
        if notify:
            self._unnotified = False
            self._notify_at = now + NOTIFY_S
        statements = [_NOTIFY] if notify else []
        if listen != self._listening:
            statements.append(self._listen if listen else _UNLISTEN)
        if look:
            self._look_at = math.inf  # who reads from here on wants another look
        end = await on_thread(partial(self._ask, statements, beat=beat, look=look))
        now = trio.current_time()
        if beat:
            self._beat_at = now + HEARTBEAT_S
        if look:
            self._looked_at = now
        if listen and (look or not self._listening):
            self._look_at = min(self._look_at, now + LOOK_S)
        # Commits from before we listened were notified to others only.
        if end > self._end or listen > self._listening:
            self._pending = True
        self._end, self._listening = max(end, self._end), listen
        self._pass_on()

    def _listens(self, *, beat: bool) -> bool:
        """Whether to listen from now on: as long as anybody has followed since two heartbeats."""
        if not beat:
            return self._listening or self._followers.number > 0
        followed, self._followed = self._followed, False
        return followed or self._followers.number > 0

    def _ask(
        self, statements: list[bytes], connection: ServerConnection, *, beat: bool, look: bool
    ) -> int:
        """Ask the server, on a thread; return how far the log has come, 0 if not asked."""
        if statements:
            with connection.queued():  # who begins to listen waits for a turn
                for each in statements:
                    connection.simple_query(each)
        if beat:
            return self._server.beat(connection)
        return self._server.lost_commits.follow(connection).end if look else 0

    def _on_notification(self, pid: int) -> None:
        """Note that others have committed, on any thread; our own notifications arrive too."""
        if pid != self._pid:
            self._pending = True

    def _pass_on(self) -> bool:
        pending, self._pending = self._pending, False
        if pending:
            self.on_commits()
        return pending
