"""Hears of the commits of all daemons of a store; must not know what was committed."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import psycopg
import trio

from .committing import CHANNEL


async def listen(connection: psycopg.Connection[Any], heard: Callable[[], None]) -> None:
    """Call ``heard`` after each commit of anybody; raises psycopg.Error once the server is gone."""
    await trio.to_thread.run_sync(lambda: connection.execute(f"LISTEN {CHANNEL}"))
    heard()  # what was committed before we listened
    # A descriptor of our own: libpq closes its own when the server goes, and trio must not be
    # waiting for a number that means another file by then.
    with contextlib.closing(_Descriptor(connection.fileno())) as descriptor:
        while True:
            await trio.lowlevel.wait_readable(descriptor.number)
            connection.pgconn.consume_input()
            rung = False
            while connection.pgconn.notifies() is not None:
                rung = True
            if rung:
                heard()


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = os.dup(number)

    def close(self) -> None:
        os.close(self.number)
