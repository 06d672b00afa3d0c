"""Who serves does so alone: at one socket, on one database, with one directory of checkpoints."""

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fleetd.config import Config, load
from fleetd.host.instance_lock import AlreadyRunning, only_instance
from fleetd.host.paths import PathRefused, locks_of
from fleetd.store.files.record_files import RecordFiles
from tests.support.processes import LOCKS, Daemon, fleetctl


@pytest.fixture
def config(home: Path) -> Config:
    """Return the settings of this home."""
    return load().config


def alone(config: Config) -> AbstractContextManager[None]:
    """Hold the locks of these settings."""
    return only_instance(config.database, config.checkpoints, config.socket)


def others(home: Path, *same: str) -> dict[str, str]:
    """Return settings of which only some name what this home's daemon uses."""
    elsewhere = home / "other"
    elsewhere.mkdir(mode=0o700, exist_ok=True)
    given = {
        "FLEET_SOCKET": str(elsewhere / "d.sock"),
        "FLEET_DB_PATH": str(elsewhere / "squawk.db"),
        "FLIGHTLINE_DIR": str(elsewhere / "flightline"),
    }
    return {name: value for name, value in given.items() if name not in same}


def test_with_everything_of_its_own_a_second_daemon_starts(
    daemon: Daemon, home: Path, start: Callable[..., Daemon]
) -> None:
    other = Daemon(home / "other" / "d.sock", home / "other.log")
    other.env = os.environ | others(home)
    other.start()
    try:
        assert fleetctl("status").status == 0
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("same", "what"),
    [
        ("FLEET_SOCKET", ""),
        ("FLEET_DB_PATH", " and uses the database {home}/data/squawk.db"),
        ("FLIGHTLINE_DIR", " and uses the directory of checkpoints {home}/flightline/checkpoints"),
    ],
)
def test_a_second_daemon_says_what_the_first_one_uses_and_ends(
    daemon: Daemon, refused: Callable[..., str], home: Path, same: str, what: str
) -> None:
    assert daemon.process is not None
    log = refused(status=1, **others(home, same))
    pid = daemon.process.pid
    assert log.endswith(f"fleetd is already running (pid {pid}){what.format(home=home)}\n")
    assert fleetctl("status").status == 0
    assert not (home / "other" / "d.sock").exists()


def test_another_name_of_the_same_database_is_the_same_database(
    daemon: Daemon, refused: Callable[..., str], home: Path
) -> None:
    (home / "link").symlink_to(home / "data")
    (home / "name.db").symlink_to(home / "link" / "squawk.db")
    variables = others(home) | {"FLEET_DB_PATH": str(home / "name.db")}
    assert f"uses the database {home}/data/squawk.db" in refused(status=1, **variables)


@pytest.mark.parametrize("same", ["FLEET_DB_PATH", "FLIGHTLINE_DIR"])
def test_nothing_is_restored_where_a_daemon_writes(
    daemon: Daemon, home: Path, same: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fleetctl("backup", str(home / "copy.db")).status == 0
    for name, value in others(home, same).items():
        monkeypatch.setenv(name, value)
    said = fleetctl("restore", str(home / "copy.db"), "--yes")
    assert said.status == 1
    assert f"already running (pid {daemon.process.pid}) and uses the" in said.err
    assert "stop it before a restore" in said.err
    assert not (home / "other" / "squawk.db").exists()
    assert not list(home.glob("**/replaced-*"))


def test_while_something_is_restored_no_daemon_starts(
    config: Config, refused: Callable[..., str], home: Path
) -> None:
    with alone(config):
        assert f"(pid {os.getpid()})" in refused(status=1, **others(home, "FLEET_DB_PATH"))


def test_after_a_kill_nothing_is_held(start: Callable[..., Daemon]) -> None:
    start().kill()
    start().stop()


def test_the_locks_stay_and_are_private(start: Callable[..., Daemon], config: Config) -> None:
    start().stop()
    locks = locks_of(config.database, config.checkpoints, config.socket)
    assert {path.name for path in locks.values()} == LOCKS
    assert {stat.S_IMODE(path.lstat().st_mode) for path in locks.values()} == {0o600}


def test_no_lock_is_the_database_itself(config: Config) -> None:
    """Closing a descriptor of the database would drop SQLite's own locks on it."""
    paths = locks_of(config.database, config.checkpoints, config.socket).values()
    assert not {config.database, config.socket, config.checkpoints} & set(paths)


def test_a_lock_that_was_left_open_to_others_is_closed_to_them(config: Config) -> None:
    lock = config.database.with_name("squawk.db-lock")
    lock.touch()
    lock.chmod(0o666)
    with alone(config):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["directory", "symlink", "pipe"])
def test_what_is_no_file_in_the_place_of_a_lock_is_refused(
    config: Config, home: Path, kind: str
) -> None:
    lock = config.database.with_name("squawk.db-lock")
    if kind == "directory":
        lock.mkdir()
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(home / "precious")
    with pytest.raises(PathRefused, match=str(lock)), alone(config):
        pass
    assert not (home / "precious").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_lock_of_somebody_else_is_refused(config: Config) -> None:
    lock = config.database.with_name("squawk.db-lock")
    lock.touch()
    os.chown(lock, 65_534, 65_534)
    with pytest.raises(PathRefused, match="belongs to uid 65534"), alone(config):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_files_cannot_be_locked_it_says_so(
    config: Config, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(handle: int, how: int) -> None:
        assert how & fcntl.LOCK_NB, "it must never wait"
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(PathRefused, match=r"cannot be locked.*local disk"), alone(config):
        pass


def test_a_disk_without_room_for_a_number_keeps_nobody_from_holding_a_lock(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = config.database.with_name("squawk.db-lock")
    lock.write_text("4711\n")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.pwrite", full)
    with alone(config):
        assert lock.read_text() == "", "a number that is not ours misleads"
        with pytest.raises(AlreadyRunning, match=r"already running$"), alone(config):
            pass


def test_a_refusal_lets_go_of_what_was_held_already(config: Config) -> None:
    (config.database.with_name("squawk.db-lock")).mkdir()
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()
    with pytest.raises(PathRefused), alone(config):
        pass
    if before:
        assert len(os.listdir("/proc/self/fd")) == len(before)
    (config.database.with_name("squawk.db-lock")).rmdir()
    with alone(config), pytest.raises(AlreadyRunning), alone(config):
        pass


def test_a_lock_among_the_checkpoints_is_nobodys_file(config: Config) -> None:
    with alone(config):
        for noun in ("checkpoint", "snapshot"):
            backups = RecordFiles(config.checkpoints, noun)
            assert (backups.owners(), list(backups.files()), backups.sweep()) == ([], [], 0)


def test_doctor_and_verify_pass_over_the_locks(daemon: Daemon) -> None:
    assert fleetctl("mission", "create", "One", "--sortie", "a").status == 0
    assert fleetctl("mission", "start").status == 0
    assert fleetctl("checkpoint").status == 0
    for command in (("doctor",), ("checkpoints", "verify", "--all")):
        said = fleetctl(*command)
        assert said.status == 0, said
        assert "lock" not in said.out


def test_doctor_closes_a_lock_that_is_open_to_others(daemon: Daemon, config: Config) -> None:
    lock = config.database.with_name("squawk.db-lock")
    lock.chmod(0o644)
    said = fleetctl("doctor", "--fix")
    assert str(lock) in said.out
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_stopped_daemon_still_holds_what_it_serves(
    daemon: Daemon, refused: Callable[..., str]
) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert f"already running (pid {daemon.process.pid})" in refused(status=1)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
