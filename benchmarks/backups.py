"""The time to write the file of a checkpoint in this process, with every fsync and latest.json."""

from collections.abc import Iterator

from fleetd.domain.checkpoints.codec import to_file
from fleetd.protocol.records import Checkpoint
from fleetd.store.files.record_files import RecordFiles

from .bench import Bench
from .rows import Promise, Row


def backup_files(bench: Bench) -> Iterator[Row]:
    """Measure writing the file of a typical checkpoint, with every fsync and its latest.json."""
    fleet = bench.fleet
    for sorties in (4, 20):
        yield _writing(bench, fleet.taken(sorties), sorties)


def _writing(bench: Bench, checkpoint: Checkpoint, sorties: int) -> Row:
    backups = RecordFiles(bench.directory / "backups")
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
