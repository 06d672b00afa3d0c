"""Reads jobs on snapshots of the server's data, over connections that break."""

import psycopg
from psycopg.pq import TransactionStatus

from ...domain.core.tx import Tx
from ..worker_thread import Job
from .connection import PostgresExecutor, ServerConnection
from .errors import (
    ServerAway,
    Stalled,
    as_away,
    ends_connection,
    translate,
    was_idle_too_long,
)
from .server import ConnectionSlot
from .url import ServerAddress

_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_READ_TRIES = 2


class PostgresReader:
    """Runs batches of reading jobs on the connections of one slot."""

    def __init__(self, slot: ConnectionSlot, where: ServerAddress) -> None:
        self._slot = slot
        self._where = where

    def run(self, jobs: list[Job]) -> None:
        """Give every job its result, or raise ServerAway.

        Who stood still for so long that the server hung up has another try, alone.
        """
        alone = False
        while left := [job for job in jobs if job.result is None]:
            try:
                self._some(left[:1] if alone else left)
            except psycopg.Error as error:
                if alone and left[0].result is None:
                    left[0].fail(translate(error, self._where.name))
                alone = True

    def _some(self, jobs: list[Job]) -> None:
        """Run jobs; raises psycopg.Error when one of them stood still for too long."""
        for left in reversed(range(_READ_TRIES)):
            connection = self._slot.get()
            try:
                self._together(connection, [job for job in jobs if job.result is None])
            except psycopg.Error as error:
                self._slot.drop()
                if was_idle_too_long(error):
                    raise
                if isinstance(error, Stalled) or not left:
                    raise as_away(error, "reading") from error
            else:
                return
        raise ServerAway("reading", "its connections fail repeatedly")

    def _together(self, connection: ServerConnection, jobs: list[Job]) -> None:
        """Run jobs on one snapshot, which is newer than all that they were asked after."""
        execute = connection.executor
        begun = False
        for job in jobs:
            if not begun:
                connection.simple_query(_BEGIN)
            begun = self._one(connection, job, execute)
            if not begun:
                connection.simple_query(b"ROLLBACK")
        if begun:
            connection.simple_query(b"ROLLBACK")

    def _one(self, connection: ServerConnection, job: Job, execute: PostgresExecutor) -> bool:
        """Run a job; False when the snapshot went with it."""
        try:
            job.succeed(job.run(Tx(execute)))
        except psycopg.Error as error:
            if connection.closed or ends_connection(error):
                raise
            job.fail(translate(error, self._where.name))
            return False
        except Exception as error:  # noqa: BLE001 - it reaches the caller, who logs it
            job.fail(error)
        return connection.pgconn.transaction_status == TransactionStatus.INTRANS
