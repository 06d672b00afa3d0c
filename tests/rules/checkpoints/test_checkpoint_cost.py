"""What a checkpoint asks of the store, however many there are already."""

import apsw
import pytest

from fleetd.config import Limits
from fleetd.domain.core.tx import Execute, Kept, Tx
from fleetd.protocol.records import Mission
from tests.rules.system.test_growth import StatementSteps
from tests.support.fleet import Fleet, opened


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of every statement that a rule runs from now on, reads included."""
    seen: list[str] = []
    begin = Tx.__init__

    def begun(self: Tx, execute: Execute, kept: Kept | None = None) -> None:
        class Listening:
            def __call__(self, sql, params):
                seen.append(sql)
                return execute(sql, params)

            def tuples(self, sql, params):
                seen.append(sql)
                return execute.tuples(sql, params)

            def many(self, sql, params):
                seen.append(sql)
                execute.many(sql, params)

        begin(self, Listening(), kept)

    monkeypatch.setattr(Tx, "__init__", begun)
    return seen


async def worked_on(fleet: Fleet) -> Mission:
    mission = await fleet.mission(4)
    await fleet.agents(mission, "spec-1")
    await fleet.work(mission, 0, "spec-1")
    return mission


async def taken(fleet: Fleet, mission: Mission, statements: list[str]) -> list[str]:
    """Take a checkpoint; return the statements of its transaction."""
    await fleet.settle()
    statements.clear()
    await fleet.checkpoint(mission, wait_for_backup=False)
    return list(statements)


async def test_a_checkpoint_is_taken_with_12_statements(
    fleet: Fleet, statements: list[str]
) -> None:
    mission = await worked_on(fleet)
    first = await taken(fleet, mission, statements)
    assert len(first) <= 12, "\n".join(first)
    second = await taken(fleet, mission, statements)  # the sorties need not be read again
    for _ in range(20):
        await fleet.checkpoint(mission)
    assert await taken(fleet, mission, statements) == second


async def test_one_that_makes_room_takes_4_more(tmp_path, statements: list[str]) -> None:
    async with opened(tmp_path, limits=Limits(checkpoints_per_mission=10)) as fleet:
        mission = await worked_on(fleet)
        for _ in range(12):
            await fleet.checkpoint(mission)
        assert len(await taken(fleet, mission, statements)) <= 16


@pytest.mark.sqlite_only("counts the steps of SQLite's machine")
async def test_what_a_checkpoint_takes_does_not_grow_but_for_a_count_in_an_index(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = StatementSteps()
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, counter.watch])
    async with opened(tmp_path) as fleet:
        mission = await worked_on(fleet)
        steps: list[int] = []
        for _ in range(95):
            counter.taken = 0
            await fleet.checkpoint(mission, wait_for_backup=False)
            steps.append(counter.taken)
            await fleet.settle()
    assert steps[94] - steps[4] <= 90 * 4
