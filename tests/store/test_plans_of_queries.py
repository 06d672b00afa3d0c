"""What is asked at every snapshot, or of every run at the start, reads indexes and no documents."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from fleetd.domain.artifacts.inventory import names
from fleetd.domain.core.context import Facts
from fleetd.domain.core.tx import Tx
from fleetd.domain.missions import selection
from fleetd.protocol.requests.mission import MissionCurrent
from fleetd.protocol.requests.snapshot import SnapshotRecord
from fleetd.store.sqlite.connect import open_database
from fleetd.store.sqlite.group_commit import SqliteExecutor
from tests.support.fleet import Fleet

FROM_INDEX = "SEARCH snapshots USING COVERING INDEX idx_snapshots_run (run_id=?)"


def plans(fleet: Fleet, asked: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return how each question is answered, as far as it is about snapshots."""
    steps = [fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **values) for sql, values in asked]
    return [row["detail"] for rows in steps for row in rows if " snapshots " in row["detail"]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Return the questions that are asked from now on, with what is bound in them."""
    seen: list[tuple[str, dict[str, Any]]] = []
    ask = Tx.all

    def heard(self: Tx, sql: str, **values: Any) -> Any:
        seen.append((sql, values))
        return ask(self, sql, **values)

    monkeypatch.setattr(Tx, "all", heard)
    return seen


async def test_keeping_a_run_under_its_number_reads_no_document(
    fleet: Fleet, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    await fleet.do(SnapshotRecord("run-1"))
    weighed = [(sql, values) for sql, values in asked if "size_bytes FROM snapshots" in sql]
    assert plans(fleet, weighed) == [FROM_INDEX]


async def test_comparing_names_reads_no_document(
    fleet: Fleet, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    await fleet.do(SnapshotRecord("run-1"))
    asked.clear()
    await fleet.engine.read(names, "snapshot", ["run-1"])
    # The first is nearly always empty.
    assert plans(fleet, asked[:2]) == [
        "SCAN snapshots USING COVERING INDEX idx_snapshots_outbox",
        FROM_INDEX,
    ]


async def test_the_missions_of_a_directory_are_found_by_machine_and_by_project(
    fleet: Fleet, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    facts = Facts(places=("widget:src", "widget:."))
    await fleet.engine.run(selection.current, MissionCurrent("/srv/widget/src"), facts=facts)
    found = [(sql, values) for sql, values in asked if "missions WHERE" in sql and "project" in sql]
    steps = [fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **values)[0]["detail"] for sql, values in found]
    assert steps == [
        "SEARCH missions USING INDEX idx_missions_place (machine=? AND project_dir=? AND status=?)",
        "SEARCH missions USING INDEX idx_missions_named (project=? AND status=?)",
    ]


def test_a_statement_is_compiled_once_whatever_is_bound_in_it(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "squawk.db", None)
    compiled: list[str] = []

    def seen(action: int, *about: str | None) -> int:
        compiled.append(str(about))
        return apsw.SQLITE_OK

    inbox = (
        "SELECT m.* FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.agent_id = :agent AND d.status = :state ORDER BY d.seq LIMIT :limit"
    )
    try:
        connection.authorizer = seen
        run = SqliteExecutor(connection)
        run(inbox, {"agent": "one", "state": "queued", "limit": 1})
        assert compiled
        compiled.clear()
        for agent in ("one", "two"):
            run(inbox, {"agent": agent, "state": "acked", "limit": 50})
        assert compiled == []
    finally:
        connection.authorizer = None
        connection.close()
