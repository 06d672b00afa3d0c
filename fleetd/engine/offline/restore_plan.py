"""Plan of a restore: looks at the copy, the database it replaces and the checkpoint files."""

import os
import stat
from pathlib import Path

import msgspec

from ...config import Config
from ...domain.artifacts.kinds import FileRecord, seq_of
from ...domain.rules import KINDS
from ...domain.system.epoch import TOKENS_UNSEEN, Extent, extent
from ...protocol.errors import Corrupt, FleetError, InvalidParams, InvalidState, Storage
from ...protocol.records import Checkpoint
from ...protocol.types import Noun
from ...store.files.layout import LAYOUTS
from ...store.files.record_files import RecordFile, RecordFiles
from ...store.sqlite.database_files import reached
from ...store.sqlite.offline import OfflineDatabase, open_offline


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


def look(config: Config, source: Path) -> RestorePlan:
    """Return what restoring a copy means here; raises FleetError when it cannot be done."""
    database = config.database.resolve()
    _check_file(source, database)
    with open_offline(source) as found:
        if damage := found.damage():
            raise Corrupt(
                f"The copy {source} is damaged: {'; '.join(damage)}.", hint="Use another copy."
            )
        plan = RestorePlan(source=source, database=database, copy=_extent(found))
    plan.seq, plan.token = plan.copy.end, plan.copy.token
    _look_at_old(plan)
    _check_readable(config.checkpoints)
    for noun in KINDS:
        _look_at_files(plan, RecordFiles(config.checkpoints, noun))
    return plan


def _extent(found: OfflineDatabase) -> Extent:
    """Read how far a database reaches; one from before there were snapshots has none."""
    return extent(found.tx, [noun for noun in KINDS if found.has(KINDS[noun].table)])


def _check_file(source: Path, database: Path) -> None:
    try:
        info = source.stat()
    except FileNotFoundError:
        raise InvalidParams(f"{source} does not exist.", hint="Is it the right file?") from None
    except OSError as error:
        raise Storage(f"{source} cannot be read: {error.strerror}.", hint="Whose is it?") from error
    if not stat.S_ISREG(info.st_mode):
        what = "a directory" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        raise InvalidParams(f"{source} is {what}.", hint="Name a file that fleetctl backup made.")
    if database.exists() and database.samefile(source):
        raise InvalidParams(
            f"{source} is the database itself.", hint="Name a file that fleetctl backup made."
        )


def _look_at_old(plan: RestorePlan) -> None:
    """Read how far the old database reached; one that is damaged is moved aside all the same."""
    if plan.database.exists():
        try:
            with open_offline(plan.database) as found:
                plan.before = _extent(found)
        except InvalidState:  # somebody uses it
            raise
        except FleetError as error:
            plan.warnings.append(f"{error.message} It is moved aside as it is.")
    plan.seq = max(plan.seq, reached(plan.database))
    if plan.before is None:
        plan.token += TOKENS_UNSEEN
    else:
        plan.seq = max(plan.seq, plan.before.end)
        plan.token = max(plan.token, plan.before.token)


def _look_at_files(plan: RestorePlan, backups: RecordFiles) -> None:
    kind = KINDS[backups.layout.noun]
    known = {each.id for each in plan.copy.records[kind.noun]}
    for file in backups.files():
        where = str(backups.path_of(file.owner_id, file.record_id))
        try:
            data = backups.read(file.owner_id, file.record_id)
            record: FileRecord = kind.from_file(data or b"", where)
        except (FleetError, OSError) as error:
            becomes = "is written again" if file.record_id in known else "stays where it is"
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
    """Return where a record lies, in each form that is there."""
    plain = backups.path_of(file.owner_id, file.record_id)
    forms = (plain.with_name(f"{file.record_id}{each}") for each in backups.layout.endings)
    return [path for path in forms if os.path.lexists(path)]


def _check_readable(root: Path) -> None:
    """Raise Storage for a directory whose files would be passed over: they may be newer."""
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
    """Whether a record that the copy does not know was taken after it.

    A record is always followed by its own event, so one taken where the copy ends is newer too.
    """
    taken_at = record.timestamp if isinstance(record, Checkpoint) else record.created_at
    return seq_of(record) >= max(copy.end, 1) or taken_at > (copy.last_event_at or "")
