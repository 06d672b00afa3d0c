"""Computing the progress of a mission in this process, as every change of a sortie does."""

from collections.abc import Iterator

import apsw

from fleetd.domain.core.tx import Tx
from fleetd.domain.missions.milestones import highest_milestone, update_sortie_counts
from fleetd.protocol.records import percent
from fleetd.store.sqlite.group_commit import SqliteExecutor
from fleetd.store.sqlite.migrate import schema

from .bench import Bench
from .rows import Promise, Row

MISSION = "msn-00000001"
NOW = "2026-01-05T12:00:00.000Z"


def progress(bench: Bench) -> Iterator[Row]:
    """Measure recounting a mission of 100 sorties and finding the milestones it has passed."""
    connection = apsw.Connection(":memory:")
    connection.execute(schema())
    tx = Tx(SqliteExecutor(connection))
    _fill(tx)

    def calculate() -> int:
        row = update_sortie_counts(tx, MISSION)
        return highest_milestone(percent(row["completed_sorties"], row["total_sorties"]))

    try:
        yield bench.beside_fsync(
            "progress of 100 sorties", calculate, runs=300, promise=Promise(p95_ms=1)
        )
    finally:
        connection.close()


def _fill(tx: Tx) -> None:
    tx.run(
        "INSERT INTO missions (id, title, created_at, updated_at) VALUES (:id, 'Port', :at, :at)",
        id=MISSION,
        at=NOW,
    )
    for number in range(100):
        tx.run(
            "INSERT INTO sorties (id, mission_id, position, title, status, priority, created_at,"
            " updated_at) VALUES (:id, :mission, :n, 'Port it', :status, 'medium', :at, :at)",
            id=f"srt-{number:08x}",
            mission=MISSION,
            n=number,
            status="completed" if number % 2 else "pending",
            at=NOW,
        )
