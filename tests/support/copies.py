"""Damage to the two copies of a checkpoint, the row and the file, each kind by itself."""

import os
from collections.abc import Callable

from fleetd.protocol.records import Checkpoint
from tests.support.fleet import Fleet

Damage = Callable[[Fleet, Checkpoint], None]


def lose_row(fleet: Fleet, checkpoint: Checkpoint) -> None:
    fleet.sql("DELETE FROM checkpoints WHERE id = :id", id=checkpoint.id)


def damage_row(fleet: Fleet, checkpoint: Checkpoint) -> None:
    """Change the content of the row, so that its checksum no longer matches."""
    fleet.sql(
        "UPDATE checkpoints SET sorties_json = replace(sorties_json, 'S1', 'S9') WHERE id = :id",
        id=checkpoint.id,
    )


def garble_row(fleet: Fleet, checkpoint: Checkpoint) -> None:
    """Replace the JSON in the row with invalid text."""
    fleet.sql("UPDATE checkpoints SET locks_json = '[{' WHERE id = :id", id=checkpoint.id)


def lose_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    fleet.file_of(checkpoint).unlink()


def damage_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    """Change the content of the file, so that its checksum no longer matches."""
    file = fleet.file_of(checkpoint)
    file.write_bytes(file.read_bytes().replace(b'"S1"', b'"S9"'))


def cut_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    file = fleet.file_of(checkpoint)
    file.write_bytes(file.read_bytes()[:100])


def swap_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    """Put another complete and intact checkpoint in its place."""
    others = [p for p in fleet.file_of(checkpoint).parent.glob("chk-*") if p.stem != checkpoint.id]
    fleet.file_of(checkpoint).write_bytes(others[0].read_bytes())


def fifo_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    fleet.file_of(checkpoint).unlink()
    os.mkfifo(fleet.file_of(checkpoint))


def directory_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    fleet.file_of(checkpoint).unlink()
    fleet.file_of(checkpoint).mkdir()


def symlink_file(fleet: Fleet, checkpoint: Checkpoint) -> None:
    fleet.file_of(checkpoint).unlink()
    fleet.file_of(checkpoint).symlink_to("/etc/passwd")


def leave(_fleet: Fleet, _checkpoint: Checkpoint) -> None:
    """Do no damage."""


BAD_ROWS = (lose_row, damage_row, garble_row)
BAD_FILES = (
    lose_file,
    damage_file,
    cut_file,
    swap_file,
    fifo_file,
    directory_file,
    symlink_file,
)
