"""Runs a store migration: copies, compares both stores whole, then switches to the new one."""

import time
from collections.abc import Callable
from pathlib import Path

from ...domain.system.relocation import note_arrived, note_moved, note_moving, note_staying
from ...host.atomic_files import make_directories
from ...host.clock import wall_clock
from ...protocol.errors import Corrupt, Storage
from ...protocol.migration import Migration, TableCheck
from ...protocol.timestamps import iso
from ...store.sqlite.offline import fold
from ...store.sqlite.online_backup import part_of
from ...store.sqlite.swap import Moves, clear_up, confirm, files_of, put_in_place, unused
from ...store.transfer import postgres_side, sqlite_side
from ...store.transfer.copy import StoreSide, Tell, compare, copy_rows
from .migrate_plan import MigrationEnds, check_alone, check_source, check_target

Carry = Callable[[MigrationEnds, Tell], Migration]


def move(ends: MigrationEnds, tell: Tell) -> Migration:
    """Move the store and return what was compared; raises FleetError, and then nothing moved."""
    clear_up(ends.database)
    return _there(ends, tell) if ends.there else _back(ends, tell)


def _there(ends: MigrationEnds, tell: Tell) -> Migration:
    begun, now = time.monotonic(), iso(wall_clock())
    with (
        sqlite_side.opened(ends.database) as source,
        postgres_side.opened(ends.url, make=True) as target,
    ):
        plan = ends.plan(source)
        known = check_source(source)
        check_alone(target, ends.machine)
        check_target(target, plan.tables, known)
        copy_rows(source, target, plan, tell)
        note_arrived(target.tx, source.where, now)
        checks = _alike(compare(source, target, plan, tell))
        _leave(source, target.where, now)
        target.commit()
        target.ease(plan.carried)
        note_moved(source.tx, target.where, now)
        source.commit()
        return _report(ends, source.where, target.where, checks, begun)


def _back(ends: MigrationEnds, tell: Tell) -> Migration:
    begun, now = time.monotonic(), iso(wall_clock())
    with postgres_side.opened(ends.url, make=False) as source:
        check_alone(source, ends.machine)
        known = check_source(source)
        if ends.database.exists():
            with sqlite_side.opened(ends.database) as old:
                check_target(old, old.tables(), known)
        make_directories(ends.database.parent)
        with part_of(ends.database) as part:
            with sqlite_side.made(part) as target:
                plan = ends.plan(target)
                copy_rows(source, target, plan, tell)
                note_arrived(target.tx, source.where, now)
                checks = _alike(compare(source, target, plan, tell))
                target.commit()
            _leave(source, str(ends.database), now)
            try:
                replaced = _put(part, ends.database, now)
            except Storage:  # what was put there is taken back
                note_staying(source.tx)
                source.commit()
                raise
        note_moved(source.tx, str(ends.database), now)
        source.commit()
        return _report(ends, source.where, str(ends.database), checks, begun, replaced)


def _leave(source: StoreSide, where: str, now: str) -> None:
    """Have the old store say so before the new one counts: whatever happens, one is in use.

    Who is killed right after it finds neither in use until the same command is given again.
    """
    note_moving(source.tx, where, now)
    source.commit()
    source.begin()


def _alike(checks: list[TableCheck]) -> list[TableCheck]:
    """Return checks that all passed; raises Corrupt, so that nothing of the copy is kept."""
    if wrong := [check for check in checks if not check.same]:
        told = "; ".join(differing(check) for check in wrong)
        raise Corrupt(
            f"What was copied is not what is there: {told}.",
            hint="Nothing was moved. fleetctl doctor looks for damage.",
        )
    return checks


def differing(check: TableCheck) -> str:
    """Say in what a table of two stores differs."""
    rows = f"{check.source_rows:,} and {check.target_rows:,} rows"
    return f"{check.table} ({rows}, first at {check.first_difference})"


def _put(part: Path, database: Path, now: str) -> Path | None:
    """Put the new database in its place; return where the one lies that was there."""
    try:
        with Moves() as moves:
            fold(database)
            old = files_of(database)
            aside = database.parent / unused((database.parent,), now) if old else None
            put_in_place(part, database, aside, moves)
    except OSError as error:
        raise Storage(
            f"The new database cannot be put in its place: {error}.",
            hint="Everything is as it was. Check the free space and the permissions.",
        ) from error
    confirm(database)
    return aside / database.name if aside else None


def check(ends: MigrationEnds, tell: Tell) -> Migration:
    """Compare both stores without changing either."""
    begun = time.monotonic()
    with (
        sqlite_side.opened(ends.database) as here,
        postgres_side.opened(ends.url, make=False) as server_side,
    ):
        plan = ends.plan(here)
        source, target = (here, server_side) if ends.there else (server_side, here)
        checks = compare(source, target, plan, tell)
        return _report(ends, source.where, target.where, checks, begun, moved=False)


def _report(
    ends: MigrationEnds,
    source: str,
    target: str,
    checks: list[TableCheck],
    begun: float,
    replaced: Path | None = None,
    *,
    moved: bool = True,
) -> Migration:
    return Migration(
        moved=moved,
        source=source,
        target=target,
        tables=checks,
        setting=ends.setting,
        replaced=str(replaced) if replaced else None,
        duration_ms=int(1_000 * (time.monotonic() - begun)),
    )
