"""What is opened because somebody named it neither waits nor fills the memory."""

import contextlib
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.client import sync as fleetctl_client
from fleetd.config import ConfigError, load
from fleetd.engine.hooks import facts
from fleetd.protocol.errors import InvalidParams
from fleetd.protocol.requests.hook import HookDeliver
from tests.integration.access.conftest import STRANGER
from tests.support.fleet import Fleet
from tests.support.processes import Daemon

IDS = [
    "..",
    "../x",
    "/etc/passwd",
    "msn-1/../../x",
    "msn-1a2b3c4d\n",
    "msn-1a2b3c4d\x00",
    "msn-\u0661\u0662\u0663\u0664",
    "msn-1a2b3c4d\u200b",
    "msn-" + "a" * 5_000,
    ".fleetd.lock",
    "latest.json",
    "",
    ".",
]


FIELDS = [
    ("mission.get", "mission_id"),
    ("mission.delete", "mission_id"),
    ("checkpoint.get", "checkpoint_id"),
    ("checkpoint.delete", "checkpoint_id"),
    ("checkpoint.create", "mission_id"),
    ("snapshot.record", "run_id"),
    ("snapshot.latest", "run_id"),
]


def put(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "foreign":
        path.write_text("{}\n" * 10)
        os.chown(path, STRANGER, STRANGER)
    else:
        path.touch()
        os.truncate(path, 1 << 40)  # sparse: as large as any disk


KINDS = ["pipe", "device", "directory", "loop", "huge"]
KINDS += ["foreign"] if os.getuid() == 0 else []


@pytest.mark.parametrize("ending", ["jsonl", "json"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_transcript_that_is_none_is_passed_over_at_once(
    tmp_path: Path, kind: str, ending: str
) -> None:
    path = tmp_path / f"transcript.{ending}"
    put(path, kind)
    found = facts.tail_of(str(path))
    assert len(found) == (facts.TAIL_BYTES if kind == "huge" else 0)
    facts.log_of(str(path))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_hook_that_names_such_a_file_is_answered(
    fleet: Fleet, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "transcript.jsonl"
    put(path, kind)
    for event in ("SessionStart", "PreCompact", "Stop"):
        payload = (
            f'{{"session_id": "s", "hook_event_name": "{event}", "cwd": "{tmp_path}",'
            f' "transcript_path": "{path}", "trigger": "auto", "source": "startup"}}'
        )
        await fleet.do(HookDeliver(os.urandom(16).hex(), "claude", payload))


def test_an_id_is_matched_whole_before_anything_is_looked_for(daemon: Daemon, home: Path) -> None:
    before = sorted(home.glob("flightline/**/*"))
    with fleetctl_client.Fleet(daemon.socket) as client:
        for name, (method, field) in itertools.product(IDS, FIELDS):
            # A run may be called latest.json: its directory is its own.
            if (name, field) != ("latest.json", "run_id"):
                with pytest.raises(InvalidParams):
                    client.call_raw(method, {field: name})
    assert sorted(home.glob("flightline/**/*")) == before


def test_the_settings_of_somebody_else_are_not_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "c.toml"
    file.write_text("[limits]\nbatch = 2\n")
    monkeypatch.setenv("FLEET_CONFIG", str(file))
    assert load().config.limits.batch == 2
    file.chmod(0o666)
    with pytest.raises(ConfigError, match=r"mode 0666, so others may write to it"):
        load()
    if os.getuid() == 0:
        file.chmod(0o600)
        os.chown(file, STRANGER, STRANGER)
        with pytest.raises(ConfigError, match=f"belongs to uid {STRANGER}"):
            load()


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "loop"])
def test_settings_that_are_no_file_stop_the_start(
    refused: Callable[..., str], home: Path, kind: str
) -> None:
    put(home / "c.toml", kind)
    assert "configuration file" in refused(FLEET_CONFIG=str(home / "c.toml"))


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells of another's descriptors")
def test_no_descriptor_of_the_daemon_goes_to_its_children(daemon: Daemon) -> None:
    assert daemon.process is not None
    place = Path(f"/proc/{daemon.process.pid}")
    for each in (place / "fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            lines = each.read_text().splitlines()
            flags = next(line.split()[1] for line in lines if line.startswith("flags"))
            if int(each.name) > 2:
                assert int(flags, 8) & os.O_CLOEXEC, (place / "fd" / each.name).readlink()
