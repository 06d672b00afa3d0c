"""A NUL in a text, which PostgreSQL cannot hold, harms no record of a shared store."""

from pathlib import Path

import pytest

from fleetd.domain.core.text import without_nul
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointVerify, ErrorReport
from fleetd.protocol.requests.event import EventAppend
from tests.support.fleet import Clock, opened
from tests.support.postgres_server import LocalPostgres, run_sql


async def test_records_are_sealed_as_the_server_gives_them_back(
    tmp_path: Path, postgres: LocalPostgres, database: str
) -> None:
    async with opened(tmp_path, clock=Clock(), store=postgres.url(database)) as fleet:
        mission = await fleet.mission(title="T\0x")
        await fleet.agents(mission, "alice")
        taken = await fleet.checkpoint(mission, "a\0b")
        error = await fleet.do(
            ErrorReport("alice", "tool_failure", "E", "x\0y", mission_id=mission.id)
        )
        await fleet.settle()
        assert (await fleet.do(CheckpointGet(taken.id))).trigger_details == "a\u2400b"
        assert error.checkpoint_id is not None
        told = await fleet.do(CheckpointGet(error.checkpoint_id))
        assert "x\u2400y" in (told.trigger_details or "")
        assert (await fleet.do(CheckpointVerify())).ok


async def test_a_file_with_a_nul_heals_a_row_and_is_written_anew(
    tmp_path: Path, postgres: LocalPostgres, database: str
) -> None:
    async with opened(tmp_path, clock=Clock()) as fleet:  # a store of one's own, then a server's
        mission = await fleet.mission()
        taken = await fleet.checkpoint(mission, "a\0b")
        await fleet.settle()
    url = postgres.url(database)
    for _ in range(2):
        async with opened(tmp_path, clock=Clock(), store=url) as fleet:
            await fleet.settle()
            assert (await fleet.do(CheckpointGet(taken.id))).trigger_details == "a\u2400b"
            assert (await fleet.do(CheckpointVerify())).ok
        run_sql(url, "DELETE FROM checkpoints")


@pytest.mark.parametrize("value", ["plain", ("a", {"b": ["c"]}), 5, None])
def test_what_has_no_nul_is_left_as_it_is(value: object) -> None:
    assert without_nul(value) is value


def test_a_nul_is_found_wherever_it_is() -> None:
    request = EventAppend("note", data={"k\0": ["v\0", {"n": 1}]})
    assert without_nul(request).data == {"k\u2400": ["v\u2400", {"n": 1}]}
