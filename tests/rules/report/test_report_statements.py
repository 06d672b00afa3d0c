"""The statements of a report: each is served by an index, however long the log is."""

import re
from typing import Any

import pytest

from fleetd.harness.report import PromptSubmitted
from fleetd.protocol.requests.report import ReportGet
from tests.support.fleet import Fleet
from tests.support.hook_sessions import WorkingWindow, planned
from tests.support.statements import noted

LARGE = ("events", "checkpoints", "notes", "recoveries", "sorties", "missions", "agents", "locks")


@pytest.mark.sqlite_only("it reads the query plans of SQLite")
async def test_no_statement_of_a_report_reads_a_whole_table(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = WorkingWindow(fleet)
    told = await session.tell(PromptSubmitted("Go"), planned("> One", "Two"))
    await session.run("make")
    seen = noted(monkeypatch)
    for of in ({"mission_id": told.mission_id}, {"agent_id": told.agent_id}):
        await fleet.do(ReportGet(**of))
    statements = {sql for sql in seen if sql.startswith("SELECT")}
    assert any("FROM events WHERE agent_id = :place" in sql for sql in statements)
    plans = {sql: plan(fleet, sql) for sql in statements}
    scans = {
        sql: line
        for sql, lines in plans.items()
        for line in lines
        if line.startswith("SCAN") and " ".join(line.split()[1:2]) in LARGE and "INDEX" not in line
    }
    assert scans == {}


def plan(fleet: Fleet, sql: str) -> list[str]:
    names: dict[str, Any] = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    return [row["detail"] for row in fleet.sql(f"EXPLAIN QUERY PLAN {sql}", **names)]
