"""Every state of row, file and ``latest.json``, and what each way of reading makes of it.

The expectations come from rules written down here, not from the code under test: see ``served``.
"""

import itertools
import os
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import trio

from fleetd.protocol.errors import Corrupt, FleetError, NotFound
from fleetd.protocol.records import Checkpoint, Mission
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointLatest
from tests.support.fleet import SECOND, Fleet, opened

State = Literal["present", "missing", "damaged"]
Latest = Literal["right", "dangling", "cyclic", "directory"]
Way = Literal["get", "latest", "latest again", "recovery"]
STATES: tuple[State, ...] = ("present", "missing", "damaged")
LATEST: tuple[Latest, ...] = ("right", "dangling", "cyclic", "directory")
CASES = list(itertools.product(STATES, STATES, LATEST))


class Expected(msgspec.Struct, frozen=True):
    """Which checkpoint is served, or which error; and what a warning or the error must say."""

    which: Literal["newest", "older"] | type[FleetError]
    says: tuple[str, ...] = ()


def served(way: Way, row: State, file: State) -> Expected:
    """The rule: the row, else the file with a warning, else the one before if none was named.

    ``latest.json`` stands in no rule: what it names is never believed.
    """
    if row == "present":
        unread = way == "recovery" and file == "missing"
        return Expected("newest", ("the file of NEWEST was missing",) if unread else ())
    if file == "present":
        return Expected("newest", (f"the database row of NEWEST was {row}; it was restored",))
    if row == "missing":
        # Nothing but the file knows of it: without one, the newest there is is the older one.
        if way == "get":
            return Expected(NotFound if file == "missing" else Corrupt, ("NEWEST",))
        left = ("Corrupted checkpoint file: PATH", "it stays in place")
        return Expected("older", left if file == "damaged" else ())
    both = "is damaged in the database" if file == "missing" else "is damaged in both copies"
    more = "it has no file" if file == "missing" else "Corrupted checkpoint file: PATH"
    if way == "recovery":
        return Expected("older", (f"Checkpoint NEWEST {both}", more, "it was skipped"))
    return Expected(Corrupt, (f"Checkpoint NEWEST {both}", more))


def linked_after_start(row: State, file: State) -> Literal["newest", "older"]:
    """The rule: the newest checkpoint with a row and a file; both are healed first if need be."""
    healed = (row, file) in (("present", "missing"), ("missing", "present"))
    stands = row != "missing" and file != "missing"
    return "newest" if healed or stands else "older"


def damaged_bytes(data: bytes, kind: int) -> bytes:
    """Two kinds of damage: one byte flipped, and no JSON any more."""
    if kind % 2:
        return data[: len(data) // 2]
    place = data.index(b"NEWEST NOTE")
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


class CheckpointStage:
    """A mission with an older, whole checkpoint and a newest one, whose copies are spoilt."""

    def __init__(self, fleet: Fleet, mission: Mission, older: Checkpoint, newest: Checkpoint):
        self.fleet = fleet
        self.mission = mission
        self.older = older
        self.newest = newest
        self.path = fleet.file_of(newest)
        self.link = self.path.with_name("latest.json")

    def spoil(self, row: State, file: State, latest: Latest, kind: int) -> None:
        if row == "missing":
            self.fleet.sql("DELETE FROM checkpoints WHERE id = :id", id=self.newest.id)
        elif row == "damaged":
            bad = "'[{'" if kind % 2 else "replace(sorties_json, 'S1', 'S9')"
            statement = f"UPDATE checkpoints SET sorties_json = {bad} WHERE id = :id"
            self.fleet.sql(statement, id=self.newest.id)
        if file == "missing":
            self.path.unlink()
        elif file == "damaged":
            self.path.write_bytes(damaged_bytes(self.path.read_bytes(), kind + kind // 2))
        if latest != "right":
            self.link.unlink()
        if latest == "directory":
            self.link.mkdir()
            (self.link / "notes.txt").write_text("a person's")
        elif latest != "right":
            self.link.symlink_to("chk-gone.json" if latest == "dangling" else "latest.json")

    def told(self, text: str) -> str:
        return text.replace("NEWEST", self.newest.id).replace("PATH", str(self.path))

    async def ask(self, way: Way) -> tuple[str, list[str]]:
        if way == "recovery":
            result = await self.fleet.restore(mission_id=self.mission.id)
            return result.checkpoint_id, result.warnings
        request: Any = CheckpointGet(self.newest.id)
        if way in ("latest", "latest again"):
            request = CheckpointLatest(self.mission.id)
        got: Checkpoint = await self.fleet.do(request)
        meant = self.newest if got.id == self.newest.id else self.older
        assert (got.integrity, got.sorties) == (meant.integrity, meant.sorties)
        return got.id, got.warnings

    async def check(self, way: Way, expected: Expected) -> None:
        if isinstance(expected.which, str):
            checkpoint_id, warnings = await self.ask(way)
            assert checkpoint_id == getattr(self, expected.which).id
            said = "\n".join(warnings)
            assert bool(warnings) == bool(expected.says), said
        else:
            with pytest.raises(expected.which) as refused:
                await self.ask(way)
            said = f"{refused.value.message}\n{refused.value.hint}"
            if expected.which is NotFound:
                assert str(self.fleet.engine.store.where) in said
                assert str(self.fleet.checkpoints) in said
        for text in expected.says:
            assert self.told(text) in said


async def staged(fleet: Fleet) -> CheckpointStage:
    mission = await fleet.mission(2)
    older = await fleet.checkpoint(mission, "OLDER NOTE")
    fleet.clock.pass_by(SECOND)
    await fleet.work(mission, 1, "specialist-1")
    return CheckpointStage(fleet, mission, older, await fleet.checkpoint(mission, "NEWEST NOTE"))


@pytest.mark.parametrize("way", ["get", "latest", "latest again", "recovery"])
@pytest.mark.parametrize(("row", "file", "latest"), CASES)
async def test_what_is_served(
    fleet: Fleet, row: State, file: State, latest: Latest, way: Way
) -> None:
    stage = await staged(fleet)
    if way == "latest again":  # it is told by the directory then that nothing came
        await fleet.settle()
        await trio.to_thread.run_sync(time.sleep, 0.06)
        await stage.check("latest", Expected("newest"))
    stage.spoil(row, file, latest, CASES.index((row, file, latest)))
    await stage.check(way, served(way, row, file))


@pytest.mark.parametrize(("row", "file", "latest"), CASES)
async def test_what_a_start_makes_of_it(
    tmp_path: Path, row: State, file: State, latest: Latest, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as fleet:
        stage = await staged(fleet)
    stage.spoil(row, file, latest, CASES.index((row, file, latest)))
    spoilt = os.lstat(stage.link).st_ino
    caplog.clear()
    async with opened(tmp_path) as fleet:
        await fleet.settle()
        stage.fleet = fleet
        target = getattr(stage, linked_after_start(row, file))
        assert os.readlink(stage.link) == f"{target.id}.json"
        if latest == "directory":
            (aside,) = stage.link.parent.glob("latest.json.aside-*")
            assert os.lstat(aside).st_ino == spoilt
            assert (aside / "notes.txt").read_text() == "a person's"
            assert aside.name in caplog.text
        elif latest != "right":
            assert f"{stage.link} points at" in caplog.text
        # A lost copy is back already; a damaged one shows when it is read.
        if (row, file) == ("missing", "present"):
            assert "Restored 1 lost rows of checkpoints" in caplog.text
            row = "present"
        elif (row, file) == ("present", "missing"):
            assert f"Writing 1 missing files of {stage.mission.id}" in caplog.text
            assert stage.path.is_file()
        elif (row, file) == ("missing", "damaged"):
            assert f"was not imported: Corrupted checkpoint file: {stage.path}" in caplog.text
        await stage.check("get", served("get", row, file))
        assert (await fleet.do(CheckpointGet(stage.older.id))).warnings == []
