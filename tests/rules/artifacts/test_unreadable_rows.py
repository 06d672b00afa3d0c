"""A row that cannot be decoded is damage with a name for whoever reads it, never a traceback."""

import pytest

from fleetd.protocol.errors import Corrupt
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.system import SystemDoctor
from tests.support.fleet import Fleet


@pytest.mark.sqlite_only("the database of a server is its owner's business")
async def test_a_row_that_cannot_be_decoded_is_damage_for_whoever_reads_it(fleet: Fleet) -> None:
    await fleet.mission()
    seq = fleet.sql("SELECT max(seq) AS seq FROM events")[0]["seq"]
    fleet.sql("UPDATE events SET data_json = '{' WHERE seq = :seq", seq=seq)
    with pytest.raises(Corrupt, match="row of the database cannot be read"):
        await fleet.do(EventList())
    found = (await fleet.do(SystemDoctor())).findings
    told = [each.detail for each in found if each.check == "database"]
    assert told == [f"events: row {seq} has invalid JSON in data_json"]
