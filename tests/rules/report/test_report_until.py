"""A report until a moment is the report that was made then."""

from typing import Any

import pytest
from msgspec.structs import asdict

from fleetd.harness.report import Paused, PromptSubmitted
from fleetd.protocol.errors import InvalidParams, InvalidState
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionUpdate
from fleetd.protocol.requests.note import NoteAdd, NoteWithdraw
from fleetd.protocol.requests.report import Report, ReportGet
from fleetd.protocol.requests.sortie import SortieBlock, SortieComplete, SortieCreate
from tests.support.fleet import MINUTE, Fleet
from tests.support.hook_sessions import PROJECT, WorkingWindow, planned

# Of a mission the plan is known, not when its row was written and whose title it had.
_UNKNOWN = ("updated_at", "last_activity_at", "author")


def told(report: Report) -> dict[str, Any]:
    fields = asdict(report)
    del fields["generated_at"]
    fields["mission"] = report.mission and _of(report.mission)
    fields["missions"] = [_of(each) for each in report.missions]
    return fields


def _of(mission: Mission) -> dict[str, Any]:
    return {name: value for name, value in asdict(mission).items() if name not in _UNKNOWN}


async def test_a_report_is_that_of_the_moment(fleet: Fleet) -> None:
    session = WorkingWindow(fleet)
    begun = await session.tell(PromptSubmitted("Add a login"))
    mission_id, agent_id = str(begun.mission_id), str(begun.agent_id)
    await session.tell(planned("x Read", "> Write", "Test"))
    await session.edit(f"{PROJECT}/form.py")
    await session.run("pytest -q")
    note = await fleet.do(NoteAdd("decision", "Hash with argon2", mission_id=mission_id))
    await fleet.do(LockAcquire(agent_id, f"{PROJECT}/form.py", mission_id=mission_id))
    saved = []
    sorties = fleet.sql("SELECT id FROM sorties ORDER BY position")

    async def save() -> None:
        await fleet.settle()
        fleet.clock.pass_by(1_000)
        for of in ({"mission_id": mission_id}, {"agent_id": agent_id}):
            then = await fleet.do(ReportGet(**of))
            saved.append((fleet.clock.now, of, then))
        fleet.clock.pass_by(MINUTE)

    await save()
    await fleet.do(SortieBlock(sorties[1]["id"], "No key"))
    await save()
    await session.compact()
    await fleet.do(SortieComplete(sorties[1]["id"], agent_id=agent_id))
    await save()
    await fleet.do(NoteWithdraw(note.id, "No more"))
    await fleet.do(MissionUpdate(mission_id, "Login and logout"))
    await fleet.do(SortieCreate(mission_id, "Write the page", agent_id=agent_id))
    await session.edit(f"{PROJECT}/page.py")
    await session.tell(PromptSubmitted("And a logout"), Paused("Done"))
    fleet.clock.pass_by(30 * MINUTE)
    for time, of, then in saved:
        again = told(await fleet.do(ReportGet(**of, until=time)))
        for field, value in told(then).items():
            assert again[field] == value, (field, time, of)


async def test_a_moment_that_nobody_knows_is_refused(fleet: Fleet) -> None:
    early = fleet.clock.now
    fleet.clock.pass_by(MINUTE)
    mission = await fleet.mission(1)
    with pytest.raises(InvalidState, match="there was no mission"):
        await fleet.do(ReportGet(mission_id=mission.id, until=early))
    with pytest.raises(InvalidParams, match="in the future"):
        await fleet.do(ReportGet(mission_id=mission.id, until="2999-01-05T12:00:00.000Z"))
