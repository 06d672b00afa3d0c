"""The units themselves: what systemd says of them, and that they forbid nothing fleetd does."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetd
from fleetctl.client import Fleet
from fleetctl.service.spec import ServiceSpec, networked, this_spec
from fleetctl.service.systemd import SERVICE, SOCKET, SYNCED, drop_in, rendered
from tests.support.hook_client import hook
from tests.support.processes import READY_S, agent_process

ANALYZE, STRACE = shutil.which("systemd-analyze"), shutil.which("strace")
ROOT = Path(fleetd.__file__).parents[1]
# A unit of root's own scores the same; what is left needs capabilities or hides what fleetd reads.
EXPOSURE = 65
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def settings(text: str, key: str) -> list[str]:
    """Return the values of a key, in their order."""
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.fixture(params=["source", "rendered"])
def units(request: pytest.FixtureRequest, home: Path) -> list[Path]:
    """Return the unit files, as they are in the repository and as they are installed here."""
    if request.param == "source":
        return [ROOT / "systemd" / name for name in (SERVICE, SOCKET)]
    texts = rendered(this_spec())
    for name, text in texts.items():
        (home / name).write_text(text)
    return [home / name for name in texts]


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_units(units: list[Path]) -> None:
    done = subprocess.run(
        [str(ANALYZE), "verify", "--user", *map(str, units)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_service_is_not_exposed_more_than_a_user_unit_must_be(units: list[Path]) -> None:
    done = subprocess.run(
        [
            *(str(ANALYZE), "security", "--user", "--offline=yes", "--no-pager"),
            *(f"--threshold={EXPOSURE}", str(units[0])),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    print(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def synced(units: list[Path], tmp_path: Path) -> list[Path]:
    """Return the units with the drop-in of a store that is reached over the network."""
    placed = [tmp_path / each.name for each in units]
    for each, path in zip(units, placed, strict=True):
        path.write_bytes(each.read_bytes())
    beside = tmp_path / f"{SERVICE}.d"
    beside.mkdir()
    (beside / SYNCED).write_text(drop_in())
    return placed


@needs_systemd
def test_systemd_finds_nothing_wrong_with_a_service_that_may_use_the_network(
    synced: list[Path],
) -> None:
    env = os.environ | {"SYSTEMD_UNIT_PATH": f"{synced[0].parent}:"}
    asked: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "env": env}
    verify = [str(ANALYZE), "verify", "--user", *map(str, synced)]
    done = subprocess.run(verify, check=False, **asked)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    security = [str(ANALYZE), "security", "--user", "--offline=yes", "--no-pager", str(synced[0])]
    done = subprocess.run([*security, f"--threshold={EXPOSURE}"], check=False, **asked)
    assert done.returncode == 0, done.stdout + done.stderr
    # It was read, and it allows no more than it says.
    said = done.stdout.splitlines()
    for families, mark in (("(INET|INET6)", "\u2717"), ("NETLINK", "\u2713")):
        (line,) = [each for each in said if f"RestrictAddressFamilies=~AF_{families}" in each]
        assert mark in line


@pytest.mark.parametrize(
    ("store", "wanted"),
    [
        ("", False),
        ("postgresql://me@db.example.org/fleet", True),
        ("postgresql://me:secret@[::1]:5432/fleet?sslmode=require", True),
        ("postgresql:///fleet", False),
        ("postgresql://me@/fleet?host=/run/postgresql", False),
        ("postgresql://%2Frun%2Fpostgresql/fleet", False),
        ("postgresql:///fleet?host=/run/postgresql,db2.example.org", True),
        ("postgresql:///fleet?hostaddr=127.0.0.1", True),
        ("postgresql:///?service=fleet", True),
        ("host=db.example.org dbname=fleet", True),
        ("host='/run/postgresql' dbname=fleet", False),
        ("dbname=fleet", False),
    ],
)
def test_a_store_that_is_reached_over_the_network_is_told_from_others(
    store: str, wanted: bool
) -> None:
    assert networked(store) is wanted


def test_the_units_say_what_was_promised(units: list[Path]) -> None:
    service, socket = (each.read_text() for each in units)
    for key, value in {
        "Type": "notify",
        "NotifyAccess": "main",
        "Restart": "on-failure",
        "RestartPreventExitStatus": "78",
        "UMask": "0077",
        "NoNewPrivileges": "yes",
        "RestrictAddressFamilies": "AF_UNIX",
        "ProtectHome": "read-only",
        "MemoryDenyWriteExecute": "yes",
    }.items():
        assert settings(service, key) == [value]
    # It would be removed under the socket.
    assert settings(service, "RuntimeDirectory") == []
    # Each needs a capability to be set up, so that a user's manager could start nothing.
    assert not re.search(
        r"^(ProtectKernel\w+|ProtectClock|PrivateDevices|Capab\w+)=", service, re.M
    )
    assert settings(socket, "SocketMode") == ["0600"]
    assert settings(socket, "DirectoryMode") == ["0700"]


def test_any_path_can_stand_in_a_unit() -> None:
    odd = Path('/srv/a b/50% "off"/$HOME')
    spec = ServiceSpec(
        command=(str(odd / "python3"), "-P", "-m", "fleetd"),
        environment={"PATH": "/bin", "FLEET_DB_PATH": str(odd / "squawk.db")},
        socket=odd / "d.sock",
        writable=(odd,),
        omitted_variables=(),
    )
    texts = rendered(spec)
    service, socket = texts[SERVICE], texts[SOCKET]
    quoted = '/srv/a b/50%% \\"off\\"/$HOME'
    dollars = quoted.replace("$", "$$")
    assert settings(service, "ExecStart") == [f'"{dollars}/python3" -P -m fleetd']
    assert settings(service, "Environment") == [
        "PATH=/bin",
        f'"FLEET_DB_PATH={quoted}/squawk.db"',
    ]
    assert settings(service, "ReadWritePaths") == [f'-"{quoted}"'] * 2
    assert settings(socket, "ListenStream") == ['/srv/a b/50%% "off"/$HOME/d.sock']


def test_a_wheel_brings_the_units_of_the_repository() -> None:
    """They are one file each, of which packaging makes the copy."""
    place = ROOT / "fleetctl" / "service" / "units"
    assert place.is_symlink()
    assert place.resolve() == (ROOT / "systemd").resolve()
    packaged = (ROOT / "pyproject.toml").read_text()
    assert '"service/units/*"' in packaged


@pytest.fixture
def traced(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """Run a daemon under strace; the function ends it and returns what it called."""
    trace = home / "trace"
    for directory in this_spec().writable:  # as "daemon install" and the unit do
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Nobody is there yet: it waits in the spool, to be taken in and removed.
    hook(json.dumps({"hook_event_name": "SessionStart", "session_id": "s-0", "source": "startup"}))
    # What coverage and the interpreter write beside the sources is no doing of fleetd's.
    own = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")}
    process = subprocess.Popen(
        [
            *(str(STRACE), "-D", "-f", "-qq", "-y", "-s", "4096", "--signal=none"),
            *("-o", str(trace), sys.executable, "-m", "fleetd"),
        ],
        env=own | {"PYTHONDONTWRITEBYTECODE": "1"},
        stderr=subprocess.PIPE,
    )

    def finish() -> list[str]:
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.wait(READY_S) == 0, process.stderr.read()
        deadline = time.monotonic() + READY_S
        # strace stays behind to write the rest down.
        ended = re.compile(rf"^{process.pid} +exit_group\(", re.M)
        while not ended.search(text := trace.read_text(errors="replace")):
            assert time.monotonic() < deadline, text[-1_000:]
            time.sleep(0.02)
        return text.splitlines()

    try:
        yield finish
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def live(home: Path) -> None:
    """Have a daemon do everything that meets the system: files, Git, processes, its own upkeep."""
    deadline = time.monotonic() + READY_S
    while not (home / "run" / "d.sock").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    project = home / "project"
    git = ["git", "-C", str(project), "-c", "user.email=a@b", "-c", "user.name=n"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "First"], check=True)
    agent = agent_process()
    for event in (
        {"hook_event_name": "SessionStart", "source": "startup"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Build it"},
        {"hook_event_name": "PreCompact", "trigger": "auto"},
        {"hook_event_name": "SessionStart", "source": "compact"},
    ):
        told = hook(json.dumps(event | {"session_id": "s-1", "cwd": str(project)}))
        assert (told.status, told.err) == (0, b"")
    with Fleet(home / "run" / "d.sock") as client:
        mission = client.call_raw("mission.list")["missions"][0]["id"]
        # Git can be asked, through pipes and in a process of its own. It has half a second, which
        # may be too short under strace.
        asked = {"mission_id": mission}
        while ", commit " not in client.call_raw("recovery.context", asked)["prompt"]:
            assert time.monotonic() < deadline, "a briefing never says what Git knows"
        watched = {"agent_id": "watched", "role": "specialist", "pid": agent.pid}
        client.call_raw("agent.register", {**watched, "cwd": str(project)})
        client.call_raw("lock.acquire", {"file": f"{project}/a.py", "agent_id": "watched"})
        client.call_raw("checkpoint.create", {"mission_id": mission})
        client.call_raw("system.doctor", {"fix": True})
        client.call_raw("system.backup", {"path": str(home / "data" / "copy.db")})
        # Rewrites the database.
        client.call_raw("system.forget", {"mission_id": mission})
    agent.kill()
    agent.wait()


def allowed(service: str) -> set[str]:
    """Return the system calls that a unit's filter lets through, by systemd's own lists."""
    listed = subprocess.run(
        [str(ANALYZE), "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True
    )
    sets: dict[str, list[str]] = {}
    for line in listed.stdout.splitlines():
        if line.startswith("@"):
            current = sets.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.lstrip().startswith("#"):
            current.append(line.strip())

    def calls(name: str) -> set[str]:
        if not name.startswith("@"):
            return {name}
        return set().union(*map(calls, sets[name]))

    found: set[str] = set()
    for value in settings(service, "SystemCallFilter"):
        named = set().union(*map(calls, value.removeprefix("~").split()))
        found = found - named if value.startswith("~") else found | named
    return found


CALL = re.compile(r"^\d+ +(\w+)\((.*)")
WRITES = {
    *("mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("link", "linkat", "symlink", "symlinkat", "chmod", "fchmodat", "truncate", "mknod"),
}
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')


def written(call: str, rest: str) -> Iterator[str]:
    """Yield the paths that a call would change."""
    if call in ("open", "openat"):
        if not re.search(r"O_(WRONLY|RDWR|CREAT)", rest):
            return
    elif call not in WRITES:
        return
    named = PATH.findall(rest)
    # The first one is what a link says.
    for directory, name in named[1:] if call.startswith("symlink") else named:
        yield os.path.normpath(os.path.join(directory, name))


@pytest.mark.skipif(STRACE is None or shutil.which("git") is None, reason="needs strace and git")
@needs_systemd
def test_what_fleetd_does_in_a_life_is_allowed_by_its_unit(
    home: Path, traced: Callable[[], list[str]]
) -> None:
    service = rendered(this_spec())[SERVICE]
    live(home)
    calls = [found.groups() for line in traced() if (found := CALL.match(line))]
    used = {call for call, _rest in calls}
    assert {"execve", "pipe2", "fdatasync", "pidfd_open", "flock"} <= used, "the trace is no trace"
    # As root SQLite gives its files to the owner of the database; nobody minds when it may not.
    assert used - allowed(service) <= {"fchown"}
    families = {rest.partition(",")[0] for call, rest in calls if call in ("socket", "socketpair")}
    assert families == {"AF_UNIX"}
    places = [value.lstrip("-").strip('"') for value in settings(service, "ReadWritePaths")]
    changed = {path for call, rest in calls for path in written(call, rest)}
    assert any(path.startswith(str(home / "flightline")) for path in changed)
    elsewhere = {
        path
        for path in changed
        if not any(path == place or path.startswith(f"{place}/") for place in places)
        and (path.startswith(str(home)) or not path.startswith(("/dev/", "/tmp", "/var/tmp")))
    }
    assert elsewhere == set()
