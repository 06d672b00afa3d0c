"""On a full disk nothing is stored, and what makes room finds room for that."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.client import Fleet
from fleetd.protocol.errors import Storage
from fleetd.store.sqlite.disk_reserve import PART, SIZE, DiskReserve
from tests.support.processes import Daemon, environment, with_checkpoints
from tests.support.small_disk import CannotMount, fill, small_disk

MIB = 1024 * 1024


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """A real file system of 48 MiB, where the database and the checkpoints lie."""
    try:
        with small_disk(home / "disk", "48m") as place:
            yield place
    except CannotMount as reason:
        pytest.skip(str(reason))


@pytest.fixture
def cramped(home: Path, disk: Path) -> Iterator[Daemon]:
    """A daemon on that disk, not started."""
    env = environment(home) | {
        "FLEET_DB_PATH": str(disk / "data" / "squawk.db"),
        "FLIGHTLINE_DIR": str(disk / "flightline"),
    }
    daemon = Daemon(socket=home / "run" / "d.sock", log=home / "daemon.log", env=env)
    try:
        yield daemon
    finally:
        daemon.clean_up()


def ballast_of(disk: Path) -> DiskReserve:
    return DiskReserve(disk / "data" / "squawk.db")


def until_whole(ballast: DiskReserve) -> None:
    for _ in range(1_000):
        if ballast.left == ballast.size:
            return
        time.sleep(0.01)
    raise AssertionError(f"{ballast.left} bytes are kept")


def write_until_full(client: Fleet) -> int:
    """Store until even little does not fit; return how many were stored."""
    stored = 0

    def store(size: int) -> None:
        nonlocal stored
        while True:
            client.call_raw("mission.create", {"title": "w", "description": "x" * size})
            stored += 1

    for size in (50_000, 1_000, 1):
        with pytest.raises(Storage, match="disk is full") as refusal:
            store(size)
        assert "retry" not in refusal.value.values
    return stored


def test_room_is_kept_where_there_is_room_and_really_allocated(tmp_path: Path) -> None:
    ballast = DiskReserve(tmp_path / "f.db", 4 * MIB)
    before = os.umask(0)
    try:
        assert ballast.make()
    finally:
        os.umask(before)
    info = ballast.path.stat()
    assert info.st_blocks * 512 >= 4 * MIB
    assert stat.S_IMODE(info.st_mode) == 0o600
    assert ballast.give()
    assert ballast.left == 4 * MIB - PART
    assert ballast.make()
    assert ballast.left == 4 * MIB


def test_room_that_is_not_really_there_is_not_kept(tmp_path: Path) -> None:
    ballast = DiskReserve(tmp_path / "f.db", 4 * MIB)
    ballast.path.touch()
    os.truncate(ballast.path, 4 * MIB)
    assert ballast.left == 0
    assert not ballast.give()
    assert ballast.make()


def test_no_room_is_kept_where_there_is_little(small_disk: Path) -> None:
    ballast = DiskReserve(small_disk / "f.db")
    assert not ballast.make()
    assert list(small_disk.iterdir()) == []


def test_one_that_was_left_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    ballast = DiskReserve(tmp_path / "f.db", 4 * MIB)
    ballast.close_to_others()  # there is none yet
    ballast.make()
    ballast.path.chmod(0o666)
    ballast.close_to_others()
    assert stat.S_IMODE(ballast.path.stat().st_mode) == 0o600


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    ballast = DiskReserve(tmp_path / "f.db")
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "precious").chmod(0o640)
    ballast.path.symlink_to(tmp_path / "precious")
    assert not ballast.make()
    ballast.close_to_others()
    assert stat.S_IMODE((tmp_path / "precious").stat().st_mode) == 0o640
    assert (tmp_path / "precious").read_text() == "mine"


def test_on_a_full_disk_reading_and_pruning_work_and_then_it_goes_on(
    cramped: Daemon, disk: Path
) -> None:
    cramped.start()
    until_whole(ballast_of(disk))
    with Fleet(cramped.socket) as client:
        with_checkpoints(client, 80)
        fill(disk / "filler", leave=2 * MIB)
        stored = write_until_full(client)
        assert stored > 5
        fill(disk / "filler")
        assert ballast_of(disk).left == SIZE, "ordinary writes may not use it"
        assert client.call_raw("mission.list", {"limit": 1})["total"] == stored + 1
        with pytest.raises(Storage):
            client.call_raw("mission.create", {"title": "w", "description": "x" * 50_000})
        pruned = client.call_raw("checkpoint.prune", {"older_than_days": 0, "keep_per_mission": 3})
        assert pruned["deleted"] == 77
        assert client.call_raw("system.health")["restart_mends"] is False
        # What was pruned left room in the database itself.
        client.call_raw("mission.create", {"title": "after", "description": "x" * 50_000})
        room = client.call_raw("system.doctor")["findings"]
        (kept,) = (finding for finding in room if finding["check"] == "room")
        assert kept["ok"] is (ballast_of(disk).left == SIZE)
        (disk / "filler").unlink()
        client.call_raw("system.doctor", {"fix": True})
        assert ballast_of(disk).left == SIZE
    cramped.stop()


def test_a_daemon_starts_on_a_full_disk_and_its_missions_can_be_deleted(
    cramped: Daemon, disk: Path
) -> None:
    cramped.start()
    until_whole(ballast_of(disk))
    with Fleet(cramped.socket) as client:
        missions = [with_checkpoints(client, 10) for _ in range(4)]
    cramped.stop()
    fill(disk / "filler")
    cramped.start()
    assert ballast_of(disk).left < SIZE
    with Fleet(cramped.socket) as client:
        assert client.call_raw("mission.list")["total"] == 4
        for mission in missions[:2]:
            client.call_raw("system.forget", {"mission_id": mission})
        assert client.call_raw("mission.list")["total"] == 2
    cramped.stop()
