"""What a report on a sortie answers is what is stored, and costs few statements."""

import pytest

from fleetd.protocol.records import Sortie
from fleetd.protocol.request import Mutation
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieFail,
    SortieProgress,
    SortieStart,
    SortieUnblock,
)
from tests.support.fleet import MINUTE, Fleet
from tests.support.statements import noted


async def test_a_report_on_a_sortie_answers_what_is_stored(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = await fleet.mission(2)
    await fleet.agents(mission, "spec-1")
    first, second = [sortie.id for sortie in await fleet.sorties(mission)]
    statements = noted(monkeypatch)
    reports: list[tuple[Mutation[Sortie], int]] = [
        (SortieAssign(first, "spec-1"), 6),
        (SortieStart(first, "spec-1"), 14),
        (SortieProgress(first, 30, "Begun", files=["a.py"]), 12),
        (SortieProgress(first, notes="And on"), 12),
        (SortieBlock(first, "Waits"), 13),
        (SortieUnblock(first, agent_id="spec-1"), 13),
        (SortieComplete(first, result="Done"), 100),  # with a checkpoint, and its file
        (SortieProgress(second, 10, agent_id="spec-1"), 13),
        (SortieFail(second, "No way"), 13),
    ]
    for report, most in reports:
        fleet.clock.pass_by(MINUTE)
        await fleet.settle()
        statements.clear()
        answer = await fleet.do(report)
        assert len(statements) <= most, statements
        assert answer in await fleet.sorties(mission)
        assert answer.updated_at == fleet.clock.now
