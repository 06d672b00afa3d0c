"""A small disk that is filled at any moment while a crew works, to the last byte.

A request that does not fit fails with ``storage``, completely. The daemon stays up; reading and
pruning work. When there is room again everything continues, the files too.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

from fleetctl.client import Fleet
from fleetd.protocol.errors import Storage, Unavailable
from fleetd.store.sqlite.disk_reserve import DiskReserve
from tests.chaos import worker
from tests.chaos.campaign import Campaign, CannotRun, Red, Run
from tests.chaos.checker import CrewChecker
from tests.chaos.view import wait_until
from tests.chaos.work import Crew
from tests.support.hook_client import take_in_spool
from tests.support.processes import Daemon, with_checkpoints
from tests.support.small_disk import CannotMount, fill, small_disk

SIZE = "32m"
WORKERS = 3
PAGE = 4_096
PATIENCE_S = 60.0
# The errors that a crew may get: a snapshot may be stored while its file finds no room.
TOLD = (*worker.AGAIN, "checkpoint_atomic_write_failed", "checkpoint_retention_prune_failed")
OLD = 60
PROGRAM = """
import contextlib
import os
import sys
from fleetd.store.sqlite import disk_reserve, group_commit
from tests.chaos.plant import plant
import apsw
{defect}
from fleetd.__main__ import main
sys.exit(main([]))
"""
DEFECTS = {
    None: "",
    # The reserve is not released, so that pruning finds no room either.
    "no_ballast": "plant(disk_reserve.DiskReserve, 'give', lambda self: False)",
    # A full disk is treated like a broken one.
    "leaves": "plant(group_commit, 'leaves_doubt', lambda error: isinstance(error, apsw.Error))",
}


def run(run: Run) -> None:
    """Fill the disk of one daemon in every round."""
    for _ in run.rounds():
        with run.home() as (home, env), _mounted(home / "flightline") as disk:
            _one(run, home, {**env, "FLEET_DB_PATH": str(disk / "data" / "squawk.db")}, disk)


@contextlib.contextmanager
def _mounted(place: Path) -> Iterator[Path]:
    try:
        with small_disk(place, SIZE):
            yield place
    except CannotMount as reason:
        raise CannotRun(str(reason)) from reason


def _one(run: Run, home: Path, env: Mapping[str, str], disk: Path) -> None:
    command = (sys.executable, "-c", PROGRAM.format(defect=DEFECTS[run.planted]))
    daemon = Daemon(Path(env["FLEET_SOCKET"]), home / "daemon.log", env=env, command=command)
    daemon.start()
    try:
        kept = DiskReserve(disk / "data" / "squawk.db")
        wait_until(lambda: kept.left == kept.size, "no room is kept", PATIENCE_S)
        with mock.patch.object(worker, "AGAIN", TOLD):
            _fill_and_empty(run, daemon, home, disk)
        daemon.stop()
    except Unavailable as gone:
        text = daemon.log.read_text()[-1_000:]
        raise Red(f"the daemon has left, or does not answer: {gone}\n{text}") from gone
    finally:
        daemon.clean_up()


def _fill_and_empty(run: Run, daemon: Daemon, home: Path, disk: Path) -> None:
    crew = Crew(daemon.socket, home, f"{run.seed}/{run.round}", WORKERS)
    witness = CrewChecker(crew, home)
    with contextlib.ExitStack() as open_, Fleet(daemon.socket) as client:
        for each in crew.workers:
            open_.callback(each.close)
        mission = with_checkpoints(client, OLD)
        crew.start()
        try:
            crew.wait_for(run.chance.randrange(10, 60))
            # Leave room for some commits: the disk fills up in the middle of one of them.
            fill(disk / "filler", leave=PAGE * run.chance.randrange(64))
            run.add("stored on the last pages", _store_until_refused(client))
        finally:
            crew.finish()
        _full(client, mission)
        witness.excuse(mission)
        (disk / "filler").unlink()
        client.call_raw("mission.create", {"title": "there is room", "description": "x" * 60_000})
        take_in_spool(client)
        files = "the files do not catch up"
        wait_until(lambda: not _backlog(client), files, PATIENCE_S)
        witness.settle(client)
    run.add("times full")


def _store_until_refused(client: Fleet) -> int:
    """Store ever smaller records until nothing fits; return how many were stored."""
    stored = 0
    for size in (50_000, 5_000, 1):
        while _stored(client, size):
            stored += 1
            if stored > 5_000:
                raise Red("a full disk takes everything")
    return stored


def _stored(client: Fleet, size: int) -> bool:
    try:
        client.call_raw("mission.create", {"title": "filling", "description": "x" * size})
    except Storage as error:
        if "full" not in error.message or error.values.get("retry"):
            raise Red(f"a full disk is told as: {error.message} {error.values}") from error
        return False
    return True


def _full(client: Fleet, mission: str) -> None:
    """Check that reading and pruning work, and that requests that do not fit are refused."""
    client.call_raw("mission.list")
    client.call_raw("event.list", {"limit": 10})
    wanted = {"older_than_days": 0, "keep_per_mission": 1, "mission_id": mission}
    try:
        pruned = client.call_raw("checkpoint.prune", wanted)["deleted"]
    except Storage as error:
        raise Red(f"on a full disk nothing can be pruned: {error}") from error
    if pruned != OLD - 1:
        raise Red(f"of {OLD - 1} checkpoints {pruned} were pruned")
    left = client.call_raw("checkpoint.list", {"mission_id": mission})["total"]
    if left != 1:
        raise Red(f"{left} checkpoints are left of a mission that keeps one")
    client.call_raw("system.health")


def _backlog(client: Fleet) -> int:
    backlog: int = client.call_raw("system.status")["backup_backlog"]
    return backlog


CAMPAIGN = Campaign(
    name="full_disk",
    what="a small disk, filled to the last byte while a crew works",
    unit="full disks",
    run=run,
    short=1,
    long=200,
    planted={"no_ballast": 3, "leaves": 2},
)
