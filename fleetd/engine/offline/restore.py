"""Carries a restore out: prepares the new database beside the old one, then swaps them by name.

Until the one rename that puts the new database in place, the old one is there and whole. What
fails before is taken back; a crash before leaves the old database, and copies in the directory
beside it. Checkpoint files go first: a database never meets files that are newer than itself.
"""

from pathlib import Path

import msgspec
import trio

from ...config import Loaded
from ...domain.rules import KINDS
from ...domain.system import epoch
from ...host.atomic_files import make_directories, sync
from ...host.clock import wall_clock
from ...protocol.errors import Corrupt, Storage
from ...protocol.timestamps import iso
from ...store.files.record_files import Backups
from ...store.sqlite.high_water_mark import ENDING as MARK
from ...store.sqlite.offline import fold, resting
from ...store.sqlite.online_backup import part_of
from ...store.sqlite.replacing import clear_up, confirm, files_of, put_in_place, unused
from ...store.sqlite.swap import Moves
from ..engine import Engine
from .files import move_files
from .restore_plan import Plan


class Aside(msgspec.Struct):
    """Where the old state goes; None for what there is none of."""

    database: Path | None
    checkpoints: Path | None


def carry_out(loaded: Loaded, plan: Plan) -> Aside:
    """Put the copy in place of the database and return where the old state lies.

    Raises FleetError; the old state is then in place and whole.
    """
    make_directories(plan.database.parent)
    clear_up(plan.database)
    try:
        with part_of(plan.database) as part:
            _prepare(loaded, plan, part)
            if plan.before is not None:  # what is damaged stays byte for byte what it is
                fold(plan.database)
            return _swap(plan, loaded.config.checkpoints, part)
    except OSError as error:
        raise Storage(
            f"The restore failed: {error}. Everything is as it was.",
            hint="Check the free space, the permissions and the disk, then try again.",
        ) from error


def _prepare(loaded: Loaded, plan: Plan, part: Path) -> None:
    """Make of the copy the database that is to be: of this schema, with an epoch of its own."""
    with resting(plan.source) as source:
        source.copy_to(part)
    paths = msgspec.structs.replace(loaded.config.paths, database=str(part))
    config = msgspec.structs.replace(loaded.config, paths=paths)
    trio.run(_renew, msgspec.structs.replace(loaded, config=config), plan)
    Path(f"{part}{MARK}").unlink()  # the one beside the database stays
    with resting(part) as made:
        damage = made.damage()
    if damage or Path(f"{part}-wal").exists():
        raise Corrupt(
            f"The copy of {plan.source} did not come out whole: {'; '.join(damage)}",
            hint="Everything is as it was. Look at the disk, then try again.",
        )
    sync(part)


async def _renew(loaded: Loaded, plan: Plan) -> None:
    engine = Engine(loaded, inline=True)
    engine.store.start()
    try:
        await engine.write(epoch.begin_epoch, plan.seq, plan.token, "copy")
        for noun in KINDS:
            await engine.write(epoch.write_again, noun, plan.missing(noun))
    finally:
        await engine.store.aclose()


def aside_for(plan: Plan, checkpoints: Path) -> Aside:
    """Return where the old state would go now: directories that nobody has used."""
    places = (plan.database.parent, checkpoints.resolve().parent)
    name = unused(places, iso(wall_clock()))
    return Aside(
        database=places[0] / name if files_of(plan.database) else None,
        checkpoints=places[1] / name / "checkpoints" if plan.newer else None,
    )


def _swap(plan: Plan, root: Path, part: Path) -> Aside:
    aside, moves = aside_for(plan, root), Moves()
    try:
        if aside.checkpoints is not None:
            for noun in plan.newer:
                move_files(plan, Backups(root, noun), aside.checkpoints, moves)
        put_in_place(part, plan.database, aside.database, moves)
    except BaseException as error:
        if isinstance(error, OSError | KeyboardInterrupt):
            moves.take_back()
        raise
    confirm(plan.database)
    return aside
