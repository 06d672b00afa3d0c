"""Restore: plans what a copy means, prepares the new database beside the old one, and swaps them.

Until the one rename that puts the new database in place, the old one is there and intact. A failure
before that is rolled back; a crash before that leaves the old database, and copies in the directory
beside it. Checkpoint files go first: a database never meets files that are newer than itself.
"""

import contextlib
import os
import stat
from pathlib import Path

import msgspec
import trio

from ...config import Config, Loaded
from ...domain.artifacts.kinds import FileRecord, seq_of
from ...domain.rules import KINDS
from ...domain.system import epoch
from ...domain.system.epoch import TOKENS_UNSEEN, Extent, extent
from ...host.atomic_files import make_directories, sync
from ...host.clock import wall_clock
from ...protocol.errors import Corrupt, FleetError, InvalidParams, InvalidState, Storage
from ...protocol.records import Checkpoint
from ...protocol.timestamps import iso
from ...protocol.types import Noun
from ...store.files.layout import LATEST, LAYOUTS
from ...store.files.record_files import RecordFile, RecordFiles
from ...store.sqlite.database_files import ENDING as MARK
from ...store.sqlite.database_files import reached
from ...store.sqlite.offline import OfflineDatabase, fold, open_offline
from ...store.sqlite.online_backup import part_of
from ...store.sqlite.swap import Moves, clear_up, confirm, files_of, put_in_place, unused
from ..engine import Engine


class RestorePlan(msgspec.Struct, kw_only=True):
    """What a restore is to do; ``before`` is None when the old database cannot be read."""

    source: Path
    database: Path
    copy: Extent
    before: Extent | None = None
    newer: dict[Noun, list[RecordFile]] = {}
    moved: list[str] = []
    present: set[str] = set()
    seq: int = 0
    token: int = 0
    warnings: list[str] = []

    def missing(self, noun: Noun) -> list[str]:
        """Return the records of the copy that have no file."""
        return [each.id for each in self.copy.live(noun) if each.id not in self.present]

    def latest_of(self, noun: Noun, owner_id: str) -> str | None:
        """Return the newest record of an owner whose file is there."""
        for each in self.copy.live(noun):
            if each.owner_id == owner_id and each.nameable and each.id in self.present:
                return each.id
        return None


def plan_restore(config: Config, source: Path) -> RestorePlan:
    """Return the plan for restoring a copy here; raises FleetError when it cannot be done."""
    database = config.database.resolve()
    _check_file(source, database)
    with open_offline(source) as found:
        if damage := found.damage():
            raise Corrupt(
                f"The copy {source} is damaged: {'; '.join(damage)}.", hint="Use another copy."
            )
        plan = RestorePlan(source=source, database=database, copy=_extent(found))
    plan.seq, plan.token = plan.copy.end, plan.copy.token
    _read_old_database(plan)
    _check_readable(config.checkpoints)
    for noun in KINDS:
        _read_files(plan, RecordFiles(config.checkpoints, noun))
    return plan


def _extent(found: OfflineDatabase) -> Extent:
    """Read how far a database reaches; one from before there were snapshots has none."""
    return extent(found.tx, [noun for noun in KINDS if found.has(KINDS[noun].table)])


def _check_file(source: Path, database: Path) -> None:
    try:
        info = source.stat()
    except FileNotFoundError:
        raise InvalidParams(f"{source} does not exist.", hint="Check the path.") from None
    except OSError as error:
        raise Storage(
            f"{source} cannot be read: {error.strerror}.", hint="Check its mode."
        ) from error
    if not stat.S_ISREG(info.st_mode):
        what = "a directory" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        raise InvalidParams(f"{source} is {what}.", hint="Name a file that fleetctl backup made.")
    if database.exists() and database.samefile(source):
        raise InvalidParams(
            f"{source} is the database itself.", hint="Name a file that fleetctl backup made."
        )


def _read_old_database(plan: RestorePlan) -> None:
    """Read how far the old database reached; a damaged one is still moved aside."""
    if plan.database.exists():
        try:
            with open_offline(plan.database) as found:
                plan.before = _extent(found)
        except InvalidState:  # another process uses it
            raise
        except FleetError as error:
            plan.warnings.append(f"{error.message} It is moved aside unchanged.")
    plan.seq = max(plan.seq, reached(plan.database))
    if plan.before is None:
        plan.token += TOKENS_UNSEEN
    else:
        plan.seq = max(plan.seq, plan.before.end)
        plan.token = max(plan.token, plan.before.token)


def _read_files(plan: RestorePlan, backups: RecordFiles) -> None:
    kind = KINDS[backups.layout.noun]
    known = {each.id for each in plan.copy.records[kind.noun]}
    for file in backups.files():
        where = str(backups.path_of(file.owner_id, file.record_id))
        try:
            data = backups.read(file.owner_id, file.record_id)
            record: FileRecord = kind.from_file(data or b"", where)
        except (FleetError, OSError) as error:
            becomes = "is written again" if file.record_id in known else "stays in place"
            plan.warnings.append(f"{error} It {becomes}.")
            continue
        plan.seq = max(plan.seq, seq_of(record))
        if isinstance(record, Checkpoint):
            plan.token = max([plan.token, *(lock.fencing_token for lock in record.active_locks)])
        if file.record_id in known:
            plan.present.add(file.record_id)
        elif _is_newer(record, plan.copy):
            plan.newer.setdefault(kind.noun, []).append(file)
            plan.moved += map(str, forms_of(backups, file))


def forms_of(backups: RecordFiles, file: RecordFile) -> list[Path]:
    """Return the paths of a record, in each form that is there."""
    plain = backups.path_of(file.owner_id, file.record_id)
    forms = (plain.with_name(f"{file.record_id}{each}") for each in backups.layout.endings)
    return [path for path in forms if os.path.lexists(path)]


def _check_readable(root: Path) -> None:
    """Raise Storage for an unreadable directory: the files skipped there may be newer."""
    try:
        for owner in root.iterdir() if root.exists() else ():
            for place in dict.fromkeys(owner / (each.inside or "") for each in LAYOUTS.values()):
                if place.is_dir() and not place.is_symlink():
                    next(place.iterdir(), None)
    except OSError as error:
        raise Storage(
            f"The checkpoint files cannot be read: {error}.",
            hint="Check the permissions of the directory and the disk. Nothing was changed.",
        ) from error


def _is_newer(record: FileRecord, copy: Extent) -> bool:
    """Return whether a record that the copy does not know was taken after it.

    A record is always followed by its own event, so one taken where the copy ends is newer too.
    """
    taken_at = record.timestamp if isinstance(record, Checkpoint) else record.created_at
    return seq_of(record) >= max(copy.end, 1) or taken_at > (copy.last_event_at or "")


def move_files(plan: RestorePlan, backups: RecordFiles, aside: Path, moves: Moves) -> None:
    """Move the newer files of a noun below ``aside``; ``latest.json`` follows the others."""
    noun = backups.layout.noun
    owners: dict[str, list[RecordFile]] = {}
    for file in plan.newer[noun]:
        owners.setdefault(file.owner_id, []).append(file)
    for owner_id, files in owners.items():
        moves.make_directory(aside / owner_id / (backups.layout.inside or ""))
        if not backups.layout.copies:
            _point_latest(backups, owner_id, plan.latest_of(noun, owner_id), moves)
        for file in files:
            for path in forms_of(backups, file):
                moves.move(path, aside / path.relative_to(backups.root).parent)
        if backups.layout.copies:
            _copy_latest(backups, owner_id, plan.latest_of(noun, owner_id), aside, moves)
        _remove_empty_dirs(backups, files[0])


def _point_latest(backups: RecordFiles, owner_id: str, latest_id: str | None, moves: Moves) -> None:
    """Point ``latest.json`` to a file that stays; if that fails, reads work without it."""
    link = backups.root / owner_id / LATEST
    with contextlib.suppress(OSError):
        before = link.readlink().name.removesuffix(".json")
        moves.then(lambda: backups.set_latest(owner_id, before))
        backups.set_latest(owner_id, latest_id)


def _copy_latest(
    backups: RecordFiles, owner_id: str, latest_id: str | None, aside: Path, moves: Moves
) -> None:
    """Copy a file that stays to ``latest.json``; the old one goes aside with its original.

    This comes last: after a crash in between, a daemon with the old database finds that files are
    missing, and writes them again together with ``latest.json``.
    """
    path = backups.root / owner_id / LATEST
    if not path.is_file() or path.is_symlink():
        return
    moves.move(path, aside / owner_id)
    if latest_id is not None:
        moves.then(lambda: backups.set_latest(owner_id, None))
        backups.set_latest(owner_id, latest_id, backups.read(owner_id, latest_id))


def _remove_empty_dirs(backups: RecordFiles, file: RecordFile) -> None:
    place = backups.path_of(file.owner_id, file.record_id).parent
    sync(place)
    with contextlib.suppress(OSError):  # it is not empty
        while place != backups.root:
            place.rmdir()
            place = place.parent


class MovedAside(msgspec.Struct):
    """Where the old state goes; None for a part that does not exist."""

    database: Path | None
    checkpoints: Path | None


def restore(loaded: Loaded, plan: RestorePlan) -> MovedAside:
    """Put the copy in place of the database and return where the old state is.

    Raises FleetError; the old state is then in place and intact.
    """
    make_directories(plan.database.parent)
    clear_up(plan.database)
    try:
        with part_of(plan.database) as part:
            _prepare(loaded, plan, part)
            if plan.before is not None:  # a damaged one stays unchanged, byte for byte
                fold(plan.database)
            return _swap(plan, loaded.config.checkpoints, part)
    except OSError as error:
        raise Storage(
            f"The restore failed: {error}. Nothing was changed.",
            hint="Check the free space, the permissions and the disk, then try again.",
        ) from error


def _prepare(loaded: Loaded, plan: RestorePlan, part: Path) -> None:
    """Make the new database from the copy: with this schema, and an epoch of its own."""
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
            f"The copy of {plan.source} is incomplete: {'; '.join(damage)}",
            hint="Nothing was changed. Check the disk, then try again.",
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
    """Return where the old state would go now: unused directories."""
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
