"""A row that cannot be decoded is damage with a name: in the doctor, on restore and for clients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetd.protocol.errors import Corrupt
from fleetd.store.sqlite.connect import open_database
from fleetd.store.sqlite.integrity_check import unreadable_rows, unreadable_rows_in
from fleetd.store.sqlite.offline import open_offline

EVENT = (
    "INSERT INTO events (seq, type, stream, timestamp, activity, data_json)"
    " VALUES ({seq}, 'file_read', 'fleet', '2026-01-05T12:00:00.000Z', 0, '{data}')"
)
DAMAGES = {
    "no JSON": (EVENT.format(seq=7, data="{"), "events: row 7 has invalid JSON in data_json"),
    "no end of counting": (
        EVENT.format(seq=2**63 - 1, data="{}"),
        "events: seq has come to 9223372036854775807, where nothing can follow",
    ),
    "JSON of another kind": (
        EVENT.format(seq=7, data="[]"),
        "events: row 7 has no object in data_json",
    ),
    "a tally that nothing can be added to": (
        "INSERT INTO tallies (what, number) VALUES ('missions', 9223372036854775807)",
        "tallies: row 'missions' has 9223372036854775807 in number",
    ),
    "a token that none can follow": (
        (
            "INSERT INTO locks SELECT 'lck-1', '', '', '', NULL, '', 0, 0, 5, 1 << 62, 'active',"
            " 0, 0, 'shared', NULL, 0, '', 0, NULL"
        ),
        "locks: row 'lck-1' has 4611686018427387904 in fencing_token",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_row_that_cannot_be_decoded_is_named_as_damage(tmp_path: Path, what: str) -> None:
    path = tmp_path / "data" / "fleet.db"
    connection = open_database(path, None)
    assert unreadable_rows(connection) == []
    statement, named = DAMAGES[what]
    connection.execute(statement)
    assert unreadable_rows(connection)[0] == named
    connection.close()
    with open_offline(path) as found:
        assert named in found.damage()
    assert named in unreadable_rows_in(path)


def test_a_row_that_was_emptied_to_be_deleted_is_no_damage(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "data" / "fleet.db", None)
    connection.execute(EVENT.format(seq=7, data=""))
    assert unreadable_rows(connection) == []
    connection.close()


async def test_a_text_that_is_no_utf_8_is_damage_and_no_bug(
    open_store: Callable[..., Any],
) -> None:
    async with open_store() as store:
        with pytest.raises(Corrupt, match="cannot be read"):
            await store.read(lambda tx: tx.value("SELECT CAST(x'ff61' AS TEXT)"))
        assert await store.read(lambda tx: tx.value("SELECT 1")) == 1
