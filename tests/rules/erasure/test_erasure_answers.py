"""Who asks again for a forgetting that a crash interrupted is told that it was done."""

from pathlib import Path
from typing import Any

import pytest

from fleetd.domain.erasure import steps
from fleetd.protocol.errors import NotFound, Storage
from fleetd.protocol.records import Mission
from fleetd.protocol.request import Mutation
from fleetd.protocol.requests.mission import Deleted, MissionCancel, MissionDelete, MissionList
from fleetd.protocol.requests.system import SystemForget
from tests.support.fleet import Fleet, meet_rules, opened

KEY = "once"


def asked(way: str, mission: Mission) -> Mutation[Any]:
    if way == "delete":
        return MissionDelete(mission.id, idempotency_key=KEY)
    return SystemForget(mission.id, idempotency_key=KEY)


class KilledError(Exception):
    """Stands for the end of the process."""


def fail_at_the_last_step(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def failing(rule: Any, *_: Any) -> None:
        if rule is steps.step:
            raise error

    meet_rules(fleet.engine, monkeypatch, failing)


async def ended_mission(fleet: Fleet) -> Mission:
    mission = await fleet.mission(2)
    await fleet.checkpoint(mission)
    await fleet.do(MissionCancel(mission.id, "over"))
    await fleet.settle()
    return mission


@pytest.mark.parametrize("way", ["delete", "forget"])
async def test_after_a_crash_the_same_key_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await ended_mission(fleet)
        fail_at_the_last_step(fleet, monkeypatch, KilledError())
        with pytest.raises(KilledError):
            await fleet.do(asked(way, mission))
    async with opened(tmp_path) as fleet:
        assert (await fleet.do(MissionList())).total == 0
        told = await fleet.do(asked(way, mission))
        if way == "delete":
            assert told == Deleted(deleted=True)
        else:
            assert told.missions == 1
            assert "fleetd was ended meanwhile" in told.warnings[0]
        with pytest.raises(NotFound):
            await fleet.do(SystemForget(mission.id, idempotency_key="another"))


@pytest.mark.parametrize("way", ["delete", "forget"])
async def test_a_forgetting_that_failed_is_done_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with opened(tmp_path) as fleet:
        mission = await ended_mission(fleet)
        with monkeypatch.context() as patched:
            fail_at_the_last_step(fleet, patched, Storage("The disk is full.", hint="Wait."))
            with pytest.raises(Storage):
                await fleet.do(asked(way, mission))
        told = await fleet.do(asked(way, mission))
        assert told == Deleted(deleted=True) if way == "delete" else told.warnings == []
        assert (await fleet.do(MissionList())).total == 0
        assert await fleet.do(asked(way, mission)) == told
