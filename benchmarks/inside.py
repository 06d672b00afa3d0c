"""Parts of the daemon on their own, in this process: counting progress, writing a backup file."""

from collections.abc import Iterator

import apsw

from fleetd.domain.content import to_file
from fleetd.domain.progress import passed, percent, recount
from fleetd.domain.tx import Tx
from fleetd.store.backups import Backups
from fleetd.store.commit import Executor
from fleetd.store.migrate import schema
from fleetd.wire.model import Checkpoint

from .bench import Bench
from .rows import Promise, Row

MISSION = "msn-00000001"
NOW = "2026-01-05T12:00:00.000Z"


def progress(bench: Bench) -> Iterator[Row]:
    """Measure recounting a mission of 100 sorties and finding the milestones it has passed."""
    connection = apsw.Connection(":memory:")
    connection.execute(schema())
    tx = Tx(Executor(connection))
    _fill(tx)

    def calculate() -> int:
        row = recount(tx, MISSION)
        return passed(percent(row["completed_sorties"], row["total_sorties"]))

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


def backup_files(bench: Bench) -> Iterator[Row]:
    """Measure writing the file of a typical checkpoint, with every fsync and its latest.json."""
    fleet = bench.fleet
    for sorties in (4, 20):
        yield _writing(bench, fleet.taken(sorties), sorties)


def _writing(bench: Bench, checkpoint: Checkpoint, sorties: int) -> Row:
    backups = Backups(bench.directory / "backups")
    written = [0]

    def write() -> None:
        written[0] += 1
        name = f"chk-{written[0]:08x}"
        backups.write(checkpoint.mission_id, name, to_file(checkpoint), name)

    return bench.beside_fsync(
        f"backup file, {sorties} sorties",
        write,
        runs=100,
        promise=Promise(spec_p95_ms=200, size_bytes=100_000),
        size=lambda: len(to_file(checkpoint)),
    )
