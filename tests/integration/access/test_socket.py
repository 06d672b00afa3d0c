"""The socket: nobody else's before anybody can see it, and never one that somebody listens on."""

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetd.config import Config, load
from fleetd.host.instance_lock import AlreadyRunning
from fleetd.host.paths import PathRefused
from fleetd.server.listener import listening
from tests.support.processes import Daemon


@pytest.fixture
def config(home: Path) -> Config:
    """Return the settings of this home."""
    return load().config


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Let whatever is made be open to everybody unless it says otherwise."""
    umask = os.umask(0)
    yield
    assert os.umask(umask) == 0


@pytest.mark.usefixtures("no_umask")
def test_its_mode_is_right_when_its_name_appears(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a moment later: a chmod after bind leaves a time in which everybody may connect."""
    seen: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            seen.append(stat.S_IMODE(Path(os.fsdecode(address)).lstat().st_mode))

    monkeypatch.setattr("fleetd.server.listener.socket.socket", Watched)
    with listening(config):
        assert stat.S_IMODE(config.socket.lstat().st_mode) == 0o600
    assert seen == [0o600]


def test_nothing_else_runs_while_the_umask_is_another(start: Callable[..., Daemon]) -> None:
    """The umask is the process's: a thread beside would make its files with it."""
    code = (
        "import os, sys, threading\n"
        "def look(umask, real=os.umask):\n"
        "    tasks = len(os.listdir('/proc/self/task')) if os.path.exists('/proc') else 0\n"
        "    print('umask', oct(umask), threading.active_count(), tasks, flush=True)\n"
        "    return real(umask)\n"
        "os.umask = look\n"
        "import fleetd.__main__; sys.exit(fleetd.__main__.main([]))"
    )
    daemon = start(command=(sys.executable, "-c", code))
    told = [line.split() for line in daemon.log.read_text().splitlines() if "umask" in line]
    assert [(umask, threads) for _, umask, threads, _ in told] == [
        ("0o77", "1"),
        ("0o177", "1"),
        ("0o77", "1"),
    ]
    assert {int(tasks) for *_, tasks in told} <= {0, 1}
    daemon.stop()


def test_where_the_mode_is_not_kept_it_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            Path(os.fsdecode(address)).chmod(0o777)

    monkeypatch.setattr("fleetd.server.listener.socket.socket", Careless)
    with pytest.raises(PathRefused, match=r"was created with mode 0777 instead of 0600"):
        listening(config).__enter__()
    assert not config.socket.exists()


def test_a_stale_socket_is_removed_only_under_the_lock_and_after_a_refusal(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(config.socket))
    order: list[str] = []
    monkeypatch.setattr("fcntl.flock", lambda *_: order.append("lock"))
    real_unlink = Path.unlink

    class Watched(socket.socket):
        def connect_ex(self, address: Any) -> int:
            order.append("connect")
            return super().connect_ex(address)

        def bind(self, address: Any) -> None:
            order.append("bind")
            super().bind(address)

    def unlink(path: Path, **options: Any) -> None:
        order.append("unlink")
        real_unlink(path, **options)

    monkeypatch.setattr("fleetd.server.listener.socket.socket", Watched)
    monkeypatch.setattr(Path, "unlink", unlink)
    with listening(config):
        assert order == ["lock", "lock", "lock", "connect", "unlink", "bind"]


def same_socket(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether nobody replaced or changed it. To connect changes the time of the last access."""
    fields = ("st_dev", "st_ino", "st_mode", "st_uid", "st_mtime_ns")
    return all(getattr(one, field) == getattr(other, field) for field in fields)


@pytest.mark.parametrize("backlog", [0, 8])
def test_a_socket_that_somebody_listens_on_is_left_alone_also_with_a_full_backlog(
    config: Config, backlog: int
) -> None:
    with socket.socket(socket.AF_UNIX) as unit, socket.socket(socket.AF_UNIX) as first:
        unit.bind(str(config.socket))
        unit.listen(backlog)
        first.connect(str(config.socket))
        before = config.socket.lstat()
        with pytest.raises(AlreadyRunning, match="Another program listens"):
            listening(config).__enter__()
        assert same_socket(config.socket.lstat(), before)


def test_an_inherited_socket_is_never_removed_nor_bound(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as unit:
        unit.bind(str(config.socket))
        unit.listen()
        given = socket.socket(fileno=os.dup(unit.fileno()))
        monkeypatch.setattr("fleetd.server.listener.inherited_sockets", lambda: [given])
        before = config.socket.lstat()
        with listening(config) as held:
            assert held.sockets == [given]
            held.close()
        assert same_socket(config.socket.lstat(), before)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(config.socket))


def test_a_socket_that_somebody_put_in_our_place_is_not_removed_at_the_end(config: Config) -> None:
    with listening(config), socket.socket(socket.AF_UNIX) as other:
        config.socket.unlink()
        other.bind(str(config.socket))
    assert config.socket.is_socket()
