"""Looks at the copy, at the database it replaces and at the checkpoint files; changes nothing."""

import stat
from pathlib import Path

import msgspec

from ..config import Config
from ..domain.content import from_file
from ..domain.returning import Extent, extent
from ..store.backups import BackupFile, Backups
from ..store.resting import resting
from ..wire.errors import Corrupt, FleetError, InvalidParams, InvalidState, Storage
from ..wire.model import Checkpoint

# What a database that cannot be read may have given out since the last thing we can read.
UNSEEN_TOKENS = 1_000_000


class Plan(msgspec.Struct, kw_only=True):
    """What a restore is to do; ``before`` is None when the old database cannot be read."""

    source: Path
    database: Path
    copy: Extent
    before: Extent | None = None
    newer: list[BackupFile] = []
    present: set[str] = set()
    seq: int = 0
    token: int = 0
    warnings: list[str] = []

    @property
    def missing(self) -> list[str]:
        """Return the checkpoints of the copy that have no file."""
        return [c.id for c in self.copy.checkpoints if not c.deleted and c.id not in self.present]

    def latest_of(self, mission_id: str) -> str | None:
        """Return the newest checkpoint of a mission whose file is there."""
        for each in self.copy.checkpoints:
            usable = not (each.deleted or each.undo) and each.id in self.present
            if each.mission_id == mission_id and usable:
                return each.id
        return None


def look(config: Config, source: Path) -> Plan:
    """Return what restoring a copy means here; raises FleetError when it cannot be done."""
    database = config.database.resolve()
    _check_file(source, database)
    with resting(source) as found:
        if damage := found.damage():
            raise Corrupt(
                f"The copy {source} is damaged: {'; '.join(damage)}.", hint="Use another copy."
            )
        plan = Plan(source=source, database=database, copy=extent(found.tx))
    plan.seq, plan.token = plan.copy.end, plan.copy.token
    _look_at_old(plan)
    _look_at_files(plan, Backups(config.checkpoints))
    return plan


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


def _look_at_old(plan: Plan) -> None:
    """Read how far the old database reached; one that is damaged is moved aside all the same."""
    if plan.database.exists():
        try:
            with resting(plan.database) as found:
                plan.before = extent(found.tx)
        except InvalidState:  # somebody uses it
            raise
        except FleetError as error:
            plan.warnings.append(f"{error.message} It is moved aside as it is.")
    if plan.before is None:
        plan.token += UNSEEN_TOKENS
    else:
        plan.seq = max(plan.seq, plan.before.end)
        plan.token = max(plan.token, plan.before.token)


def _look_at_files(plan: Plan, backups: Backups) -> None:
    _check_readable(backups.root)
    known = {each.id for each in plan.copy.checkpoints}
    for file in backups.files():
        where = str(backups.path_of(file.owner_id, file.record_id))
        try:
            data = backups.read(file.owner_id, file.record_id)
            content = from_file(data or b"", where)
        except (FleetError, OSError) as error:
            becomes = "is written again" if file.record_id in known else "stays where it is"
            plan.warnings.append(f"{error} It {becomes}.")
            continue
        plan.seq = max(plan.seq, content.seq)
        plan.token = max([plan.token, *(lock.fencing_token for lock in content.active_locks)])
        if file.record_id in known:
            plan.present.add(file.record_id)
        elif _is_newer(content, plan.copy):
            plan.newer.append(file)


def _check_readable(root: Path) -> None:
    """Raise Storage for a directory whose files would be passed over: they may be newer."""
    try:
        for mission in root.iterdir() if root.exists() else ():
            if mission.is_dir() and not mission.is_symlink():
                next(mission.iterdir(), None)
    except OSError as error:
        raise Storage(
            f"The checkpoint files cannot be read: {error}.",
            hint="Check the permissions of the directory and the disk. Nothing was changed.",
        ) from error


def _is_newer(content: Checkpoint, copy: Extent) -> bool:
    """Whether a checkpoint that the copy does not know was taken after it."""
    return content.seq > copy.end or content.timestamp > (copy.last_event_at or "")
