"""A copied machine-id on a computer of the same hostname: two real daemons, one of them a copy."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from fleetctl.client import Fleet
from fleetd.engine.jobs.cluster import host_name
from fleetd.store.machine_identity import ID_FILE
from fleetd.store.machine_identity import STARTS_FILE as NONCES
from tests.support.postgres_server import LocalPostgres
from tests.support.processes import Daemon, environment

PATIENCE_S = 30
REFUSED = 1
OTHER_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def _can_unshare() -> bool:
    tried = subprocess.run([*OTHER_NAMESPACE, "--mount-proc", "true"], capture_output=True)
    return tried.returncode == 0


class Computers:
    """Daemons of one store; each has a home of its own, and all have the same hostname."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._homes: list[Path] = []
        self._daemons: list[Daemon] = []

    def daemon(self, like: Daemon | None = None, *, apart: bool = False) -> Daemon:
        """Return a daemon that is not started; ``like`` one whose data directory it has a copy of.

        ``apart`` puts it into a pid namespace of its own, as on another computer.
        """
        home = Path(tempfile.mkdtemp(prefix="fleet-"))
        env = environment(home) | {"FLEET_DATABASE_URL": self._url}
        if like is not None:
            for name in (ID_FILE, NONCES):
                shutil.copy(data(like) / name, home / "data" / name)
        daemon = Daemon(home / "run" / "d.sock", home / "log", env=env, warm=True)
        if apart:
            daemon.command = (*OTHER_NAMESPACE, "--mount-proc", *daemon.command)
        self._homes.append(home)
        self._daemons.append(daemon)
        return daemon

    def clean_up(self) -> None:
        for daemon in self._daemons:
            daemon.clean_up()
        for home in self._homes:
            shutil.rmtree(home)


def data(daemon: Daemon) -> Path:
    assert daemon.env is not None
    return Path(daemon.env["FLEET_DB_PATH"]).parent


@pytest.fixture
def computers(postgres: LocalPostgres, database: str) -> Iterator[Computers]:
    found = Computers(postgres.url(database))
    try:
        yield found
    finally:
        found.clean_up()


def ask(daemon: Daemon, method: str, **params: Any) -> Any:
    with Fleet(daemon.socket) as client:
        return client.call_raw(method, params)


def until(look: Callable[[], bool]) -> None:
    """Wait, in real time, for what processes do."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def beats(daemon: Daemon) -> bool:
    """Whether the store has heard of a daemon."""
    return [each["status"] for each in ask(daemon, "system.status")["machines"]] == ["here"]


def refused(daemon: Daemon) -> str:
    """Start a daemon that must not come up; return what it says."""
    process = daemon.spawn()
    assert process.wait(2 * PATIENCE_S) == REFUSED, daemon.log.read_text()
    return daemon.log.read_text()


def told(log: str) -> None:
    """It says what is the matter, and what to do."""
    assert f"Another fleetd, on {host_name()}, uses the id" in log
    assert f"remove {ID_FILE} from its data directory" in log


@pytest.mark.skipif(not _can_unshare(), reason="nobody may make pid namespaces here")
@pytest.mark.parametrize("stale", [True, False])
def test_a_copied_machine_id_in_another_pid_namespace_declares_nobody_lost(
    computers: Computers, mortal: Callable[[], Popen[bytes]], stale: bool
) -> None:
    """Also where the copy is of this very start of the daemon: then it waits for the next beat."""
    original = computers.daemon()
    original.start()
    copy = computers.daemon(like=original, apart=True)
    if stale:
        original.stop()
        original.start()
    until(lambda: beats(original))
    ask(original, "agent.register", agent_id="spec-1", role="specialist", pid=mortal().pid)

    told(refused(copy))

    assert ask(original, "agent.get", agent_id="spec-1")["status"] == "active"
    assert ask(original, "event.list", type="agent_lost")["events"] == []
    assert ask(original, "mission.create", title="It still writes")["id"]


@pytest.mark.parametrize("stale", [True, False])
def test_a_copied_machine_id_beside_its_original_is_refused_and_throws_nobody_out(
    computers: Computers, stale: bool
) -> None:
    original = computers.daemon()
    original.start()
    copy = computers.daemon(like=original)
    if stale:
        original.stop()
        original.start()
    until(lambda: beats(original))

    for _ in range(2):
        told(refused(copy))
        assert ask(original, "mission.create", title="It still writes")["id"]
    assert "cannot be used" not in original.log.read_text()

    (data(copy) / ID_FILE).unlink()
    copy.start()
    until(lambda: len(ask(copy, "system.status")["machines"]) == 2)


def test_a_restart_after_kill_9_is_not_refused(
    computers: Computers, postgres: LocalPostgres, database: str
) -> None:
    daemon = computers.daemon()
    daemon.start()
    until(lambda: beats(daemon))

    def nonce() -> str:
        (row,) = postgres.sql("SELECT nonce, boot_id FROM machines", database=database)
        assert row["boot_id"]
        return str(row["nonce"])

    seen = {nonce()}
    for _ in range(6):  # more often than the disk remembers starts
        daemon.kill()
        begun = time.monotonic()
        daemon.start()
        until(lambda: nonce() not in seen)
        assert time.monotonic() - begun < PATIENCE_S / 2
        seen.add(nonce())
    kept = [each["nonce"] for each in json.loads((data(daemon) / NONCES).read_bytes())]
    assert len(kept) == len(set(kept)) > 1
    assert kept[-1] == nonce()


def test_who_was_overtaken_by_a_copy_ends_and_says_what_to_do(
    computers: Computers, postgres: LocalPostgres, database: str
) -> None:
    """It was not heard of for a while, so that a copy of it came up; both cannot go on."""
    original = computers.daemon()
    original.start()
    copy = computers.daemon(like=original)
    until(lambda: beats(original))
    original.stop()
    copy.start()
    until(lambda: beats(copy))

    told(refused(original))

    copy.stop()
    original.start()
    until(lambda: beats(original))
    copied = computers.daemon(like=original)
    postgres.sql(
        "UPDATE machines SET nonce = 'another', boot_id = 'another',"
        " heard_awake_ms = heard_awake_ms + 60000",
        database=database,
    )
    assert original.process is not None
    assert original.process.wait(PATIENCE_S) == REFUSED
    told(original.log.read_text())
    told(refused(copied))
