"""Moves files that are newer than a copy aside, so that each step can be taken back."""

import contextlib
from pathlib import Path

from ...host.atomic_files import sync
from ...store.files.record_files import LATEST, BackupFile, Backups
from ...store.sqlite.swap import Moves
from .restore_plan import Plan, forms_of


def move_files(plan: Plan, backups: Backups, aside: Path, moves: Moves) -> None:
    """Move the newer files of a noun below ``aside``; ``latest.json`` follows what stays."""
    noun = backups.layout.noun
    owners: dict[str, list[BackupFile]] = {}
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


def _point(backups: Backups, owner_id: str, latest_id: str | None, moves: Moves) -> None:
    """Let ``latest.json`` name what stays; where that cannot be done, reading does without."""
    link = backups.root / owner_id / LATEST
    with contextlib.suppress(OSError):
        before = link.readlink().name.removesuffix(".json")
        moves.then(lambda: backups.set_latest(owner_id, before))
        backups.set_latest(owner_id, latest_id)


def _copy(
    backups: Backups, owner_id: str, latest_id: str | None, aside: Path, moves: Moves
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


def _leave_no_empty(backups: Backups, file: BackupFile) -> None:
    place = backups.path_of(file.owner_id, file.record_id).parent
    sync(place)
    with contextlib.suppress(OSError):  # something is left in it
        while place != backups.root:
            place.rmdir()
            place = place.parent
