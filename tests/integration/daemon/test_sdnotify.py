"""The watchdog in virtual time, and the variables it is told about."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.host.systemd import Notifier, feed_watchdog
from tests.support.service_socket import heard, service_socket


@pytest.fixture
def listening(tmp_path: Path) -> Any:
    with service_socket(tmp_path / "n") as sock:
        yield sock


async def test_it_feeds_only_while_the_check_succeeds(
    listening: socket.socket, tmp_path: Path, autojump_clock: Any
) -> None:
    health = {"ok": True}

    async def healthy() -> bool:
        return health["ok"]

    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed_watchdog, notifier, 10, healthy)
        await trio.sleep(35)
        assert heard(listening) == [b"WATCHDOG=1"] * 4
        health["ok"] = False
        await trio.sleep(30)
        assert heard(listening) == []
        health["ok"] = True
        await trio.sleep(10)
        assert heard(listening) == [b"WATCHDOG=1"]
        nursery.cancel_scope.cancel()


async def test_a_check_that_hangs_feeds_nothing(
    listening: socket.socket, tmp_path: Path, autojump_clock: Any
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
    with trio.move_on_after(1_000):
        await feed_watchdog(notifier, 10, trio.sleep_forever)
    assert heard(listening) == []


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_period_is_read_from_the_environment(
    env: dict[str, str], seconds: float | None
) -> None:
    notifier = Notifier(env)
    assert notifier.watchdog_seconds == seconds
    assert env == {}, "children must not see what is meant for this process"


def test_without_a_socket_nothing_is_sent_and_nothing_fails() -> None:
    assert Notifier({}).send("READY=1") is None
