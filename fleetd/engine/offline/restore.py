"""Runs a restore: prepares the new database beside the old one, then swaps them by name.

Until the one rename that puts the new database in place, the old one is there and whole. What
fails before is taken back; a crash before leaves the old database, and copies in the directory
beside it. Checkpoint files go first: a database never meets files that are newer than itself.
"""

import contextlib
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
from ...store.files.layout import LATEST
from ...store.files.record_files import RecordFile, RecordFiles
from ...store.sqlite.high_water_mark import ENDING as MARK
from ...store.sqlite.offline import fold, open_offline
from ...store.sqlite.online_backup import part_of
from ...store.sqlite.swap import Moves, clear_up, confirm, files_of, put_in_place, unused
from ..engine import Engine
from .restore_plan import RestorePlan, forms_of


def move_files(plan: RestorePlan, backups: RecordFiles, aside: Path, moves: Moves) -> None:
    """Move the newer files of a noun below ``aside``; ``latest.json`` follows what stays."""
    noun = backups.layout.noun
    owners: dict[str, list[RecordFile]] = {}
    for file in plan.newer[noun]:
        owners.setdefault(file.owner_id, []).append(file)
    for owner_id, files in owners.items():
        moves.make_directory(aside / owner_id / (backups.layout.inside or ""))
        if not backups.layout.copies:
            _point(backups, owner_id, plan.latest_of(noun, owner_id), moves)
        for file in files:
            for path in forms_of(backups, file):
                moves.move(path, aside / path.relative_to(backups.root).parent)
        if backups.layout.copies:
            _copy(backups, owner_id, plan.latest_of(noun, owner_id), aside, moves)
        _leave_no_empty(backups, files[0])


def _point(backups: RecordFiles, owner_id: str, latest_id: str | None, moves: Moves) -> None:
    """Let ``latest.json`` name what stays; where that cannot be done, reading does without."""
    link = backups.root / owner_id / LATEST
    with contextlib.suppress(OSError):
        before = link.readlink().name.removesuffix(".json")
        moves.then(lambda: backups.set_latest(owner_id, before))
        backups.set_latest(owner_id, latest_id)


def _copy(
    backups: RecordFiles, owner_id: str, latest_id: str | None, aside: Path, moves: Moves
) -> None:
    """Let ``latest.json`` hold what stays; the old one goes aside with the file it is a copy of.

    Only now: whoever finds the old database in its place after a crash in between finds files that
    are missing, and writes them again together with it.
    """
    path = backups.root / owner_id / LATEST
    if not path.is_file() or path.is_symlink():
        return
    moves.move(path, aside / owner_id)
    if latest_id is not None:
        moves.then(lambda: backups.set_latest(owner_id, None))
        backups.set_latest(owner_id, latest_id, backups.read(owner_id, latest_id))


def _leave_no_empty(backups: RecordFiles, file: RecordFile) -> None:
    place = backups.path_of(file.owner_id, file.record_id).parent
    sync(place)
    with contextlib.suppress(OSError):  # something is left in it
        while place != backups.root:
            place.rmdir()
            place = place.parent


class MovedAside(msgspec.Struct):
    """Where the old state goes; None for what there is none of."""

    database: Path | None
    checkpoints: Path | None


def restore(loaded: Loaded, plan: RestorePlan) -> MovedAside:
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


def _prepare(loaded: Loaded, plan: RestorePlan, part: Path) -> None:
    """Make of the copy the database that is to be: of this schema, with an epoch of its own."""
    with open_offline(plan.source) as source:
        source.copy_to(part)
    paths = msgspec.structs.replace(loaded.config.paths, database=str(part))
    config = msgspec.structs.replace(loaded.config, paths=paths)
    trio.run(_renew, msgspec.structs.replace(loaded, config=config), plan)
    Path(f"{part}{MARK}").unlink()  # the one beside the database stays
    with open_offline(part) as made:
        damage = made.damage()
    if damage or Path(f"{part}-wal").exists():
        raise Corrupt(
            f"The copy of {plan.source} did not come out whole: {'; '.join(damage)}",
            hint="Everything is as it was. Look at the disk, then try again.",
        )
    sync(part)


async def _renew(loaded: Loaded, plan: RestorePlan) -> None:
    engine = Engine(loaded, inline=True)
    engine.store.start()
    try:
        await engine.write(epoch.begin_epoch, plan.seq, plan.token, "copy")
        for noun in KINDS:
            await engine.write(epoch.reset_backups, noun, plan.missing(noun))
    finally:
        await engine.store.aclose()


def aside_for(plan: RestorePlan, checkpoints: Path) -> MovedAside:
    """Return where the old state would go now: directories that nobody has used."""
    places = (plan.database.parent, checkpoints.resolve().parent)
    name = unused(places, iso(wall_clock()))
    return MovedAside(
        database=places[0] / name if files_of(plan.database) else None,
        checkpoints=places[1] / name / "checkpoints" if plan.newer else None,
    )


def _swap(plan: RestorePlan, root: Path, part: Path) -> MovedAside:
    aside = aside_for(plan, root)
    with Moves() as moves:
        if aside.checkpoints is not None:
            for noun in plan.newer:
                move_files(plan, RecordFiles(root, noun), aside.checkpoints, moves)
        put_in_place(part, plan.database, aside.database, moves)
    confirm(plan.database)
    return aside
