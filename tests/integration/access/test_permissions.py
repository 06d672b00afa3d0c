"""Whatever fleetd makes is for its user only, under any umask, and what was open is closed."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetd.engine.jobs.daily import compress
from fleetd.protocol.requests.snapshot import DeclaredStep, SnapshotRecord
from fleetd.protocol.requests.system import SystemBackup
from tests.support.fleet import HOUR, Clock, opened
from tests.support.hook_client import hook, spooled
from tests.support.processes import LOCKS, Daemon, fleetctl

LEGACY = {
    "version": 1,
    "mailboxes": {},
    "events": {},
    "cursors": {},
    "locks": {},
}
OPEN_UMASK = (
    "sh",
    "-c",
    'umask 0; exec "$@"',
    "sh",
    sys.executable,
    "-m",
    "fleetd",
)


def open_to_others(*roots: Path) -> dict[str, str]:
    """Return everything below the roots that is open to others, with its mode."""
    found = {}
    for path in (each for root in roots for each in (root, *root.rglob("*"))):
        info = path.lstat()
        if not stat.S_ISLNK(info.st_mode) and stat.S_IMODE(info.st_mode) & 0o077:
            found[str(path)] = f"{stat.S_IMODE(info.st_mode):04o}"
    return found


def names(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*")}


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Let whatever is made be open to everybody unless it says otherwise."""
    umask = os.umask(0)
    yield
    assert os.umask(umask) == 0


@pytest.fixture
def places(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """Return the roots of everything that is made; none of them is there yet."""
    monkeypatch.setenv("FLEET_SOCKET", str(home / "run" / "fleet" / "d.sock"))
    monkeypatch.setenv("FLEET_DB_PATH", str(home / "data" / "fleet" / "squawk.db"))
    monkeypatch.setenv("FLIGHTLINE_DIR", str(home / "data" / "flightline"))
    return (home / "run" / "fleet", home / "data", home / "state" / "fleet")


def live(home: Path) -> None:
    """Have every kind of file made that clients can bring about."""
    for command in (
        ("mission", "create", "One", "--sortie", "a", "--sortie", "b"),
        ("mission", "start"),
        ("checkpoint", "--note", "here"),
        ("snapshot", "record", "--run", "build-42"),
        ("backup", str(home / "data" / "copy.db")),
    ):
        assert fleetctl(*command).status == 0, command


def say(event: str) -> None:
    payload = {"session_id": "s-1", "hook_event_name": event, "cwd": str(Path.cwd())}
    assert hook(json.dumps(payload)).silent or event == "SessionStart"


@pytest.mark.usefixtures("no_umask")
def test_nothing_that_a_whole_life_leaves_behind_is_open_to_others(
    home: Path, places: tuple[Path, ...], start: Callable[..., Daemon]
) -> None:
    say("SessionStart")
    assert len(spooled()) == 1
    assert open_to_others(*places[2:]) == {}
    (home / "data" / "fleet").mkdir(mode=0o700)
    (home / "data" / "fleet" / "squawk.json").write_text(json.dumps(LEGACY))
    daemon = begin(home, start)
    live(home)
    assert open_to_others(*places) == {}
    daemon.kill()
    say("Stop")
    daemon = begin(home, start)
    assert open_to_others(*places) == {}
    daemon.stop()
    assert fleetctl("restore", str(home / "data" / "copy.db"), "--yes").status == 0
    daemon = begin(home, start)
    (home / "data" / "fleet" / "squawk.db").unlink()
    fleetctl("mission", "create", "Two")
    assert daemon.process is not None
    assert daemon.process.wait(30) == 1
    assert open_to_others(*places) == {}
    made = names(home / "data") | names(home / "run")
    assert {*LOCKS, "squawk.json.backup", "copy.db", "latest.json", "history"} <= made
    assert any(name.startswith("replaced-") for name in made)
    assert any(name.startswith("squawk.db.rescued-") for name in made)


def begin(home: Path, start: Callable[..., Daemon]) -> Daemon:
    daemon = start(command=OPEN_UMASK)
    assert daemon.socket == home / "run" / "fleet" / "d.sock"
    return daemon


@pytest.mark.usefixtures("no_umask")
async def test_no_file_owes_its_permissions_to_the_umask(tmp_path: Path) -> None:
    """The daemon sets its umask first of all; who uses the engine otherwise may not."""
    root, clock = tmp_path / "root", Clock()
    root.mkdir(mode=0o700)
    async with opened(root, clock=clock) as fleet:
        await fleet.checkpoint(await fleet.mission(), "here")
        for ordinal in (1, 2):
            step = DeclaredStep(step_id=f"s-{ordinal}", step_ordinal=ordinal)
            await fleet.do(SnapshotRecord(run_id="build-42", step_state=step))
        await fleet.settle()
        clock.pass_by(25 * HOUR)
        await compress(fleet.engine)
        await fleet.do(SystemBackup(str(root / "copy.db")))
        await fleet.settle()
    (root / "project").chmod(0o700)
    assert any(name.endswith(".json.gz") for name in names(root))
    assert open_to_others(root) == {}


def test_what_was_open_to_others_is_closed_by_the_doctor(
    home: Path, places: tuple[Path, ...], start: Callable[..., Daemon]
) -> None:
    daemon = begin(home, start)
    live(home)
    daemon.kill()
    say("Stop")
    for path in (path for root in places for path in (root, *root.rglob("*"))):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    (home / "run" / "fleet").chmod(0o700)  # else the daemon refuses to start
    (home / "data").chmod(0o700)  # above what is fleetd's, so not its to close
    daemon = begin(home, start)
    found = open_to_others(*places)
    assert not [path for path in found if "squawk.db" in path or "lock" in path or "sock" in path]
    assert len(found) > 5
    assert fleetctl("doctor").status == 1
    said = fleetctl("doctor", "--fix")
    assert said.status == 0, said
    left = open_to_others(*places)
    assert left == {
        str(home / "data" / "copy.db"): "0666",  # ours no more
        str(home / "data" / "flightline"): "0755",  # a directory of the user's, as a home is
    }
    daemon.stop()
