"""Store migration: copies a store, compares both whole, then switches to the new one."""

import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...config import Config, without_password
from ...domain.system.relocation import (
    StoreIdentity,
    identity,
    note_arrived,
    note_moved,
    note_moving,
    note_staying,
)
from ...host.atomic_files import make_directories
from ...host.clock import wall_clock
from ...protocol.errors import Corrupt, InvalidParams, InvalidState, Storage
from ...protocol.migration import Migration, MigrationRequest, TableCheck
from ...protocol.timestamps import iso
from ...store.machine_identity import machine_id
from ...store.postgres.url import parse
from ...store.sqlite.offline import fold
from ...store.sqlite.online_backup import part_of
from ...store.sqlite.swap import Moves, clear_up, confirm, files_of, put_in_place, unused
from ...store.transfer import postgres_side, sqlite_side
from ...store.transfer.copy import (
    OnProgress,
    StoreSide,
    Table,
    TransferPlan,
    compare,
    copy_rows,
    size,
)
from ...store.transfer.postgres_side import PostgresSide
from ...store.transfer.sqlite_side import SqliteSide

LOCAL = "sqlite"
# The tables that have rows before anybody used a store.
BARE = {"store_meta", "counters", "tallies", "machines"}


class MigrationEnds(msgspec.Struct, frozen=True):
    """The server and the database file of this machine, and whether the move goes to the server."""

    url: str
    database: Path
    machine: str
    there: bool

    def plan(self, local: SqliteSide) -> TransferPlan:
        """Return what is copied."""
        return TransferPlan(
            tables=tuple(local.tables()),
            counted=frozenset(local.counted()),
            machine=self.machine,
            shared=self.there,
        )

    @property
    def setting(self) -> str:
        """Return the new value of the setting ``store``, without any password."""
        return bare(self.url) if self.there else ""


def ends_of(config: Config, request: MigrationRequest) -> MigrationEnds:
    """Return which stores a request and the settings mean.

    Raises InvalidParams, and StoreRefused for a URL that cannot be read.
    """
    to, source = request.to or config.store, request.source
    there = to != LOCAL
    url = to if there else (source or config.store)
    if not url:
        raise InvalidParams(
            "The server is missing: the setting store is empty.",
            hint="Give it: --to postgresql://USER@HOST/DATABASE, or --from with --to sqlite.",
        )
    if there and source not in ("", LOCAL):
        raise InvalidParams(
            "A store moves between this machine's database and a server, not between two servers.",
            hint="pg_dump and pg_restore move a database from server to server.",
        )
    parse(url)
    return MigrationEnds(url, config.database.resolve(), machine_id(config.database.parent), there)


def bare(url: str) -> str:
    """Return a URL without its password, as it can be written in a configuration."""
    shown = without_password(url).replace(":***@", "@")
    return re.sub(r"(?i)[&?\s]?\bpassword\s*=\s*\*\*\*", "", shown)


def check_source(side: StoreSide) -> StoreIdentity:
    """Return the identity of the store to move; raises InvalidState for one that moved away."""
    known = identity(side.tx)
    if known.moved_to is not None:
        raise InvalidState(
            f"{side.where} was already moved to {known.moved_to.where} at {known.moved_to.at}.",
            hint="To move the new store, give it with --from. To continue with the old one: "
            "fleetctl migrate --undo",
        )
    return known


def check_target(side: StoreSide, tables: Sequence[Table], source: StoreIdentity) -> None:
    """Raise InvalidState when a target contains data that is nowhere else.

    Data that came from this same store and was not used since, or was moved back to it, is
    replaced.
    """
    known = identity(side.tx)
    if known.epoch == source.epoch and (known.arrived or known.moved_to):
        return
    if held := _held(side, tables):
        raise InvalidState(
            f"{side.where} already holds another store: {', '.join(held)}.",
            hint="Name a database, or a schema, that is empty; or move the other store away first.",
        )


def _held(side: StoreSide, tables: Iterable[Table]) -> list[str]:
    """Return how many recorded rows a store has, by table."""
    counts = {table.name: size(side, table) for table in tables if table.name not in BARE}
    return [f"{number:,} {name}" for name, number in sorted(counts.items()) if number]


def check_alone(side: PostgresSide, machine: str) -> None:
    """Raise InvalidState while other machines use a shared store."""
    if names := side.at_work(machine):
        raise InvalidState(
            f"{side.where} is in use: fleetd runs on {', '.join(names)}.",
            hint="Stop it there: fleetctl daemon stop. A killed daemon counts for a minute.",
        )


def move(ends: MigrationEnds, on_progress: OnProgress) -> Migration:
    """Move the store and return what was compared; raises FleetError, and then nothing moved."""
    clear_up(ends.database)
    return _to_server(ends, on_progress) if ends.there else _from_server(ends, on_progress)


def _to_server(ends: MigrationEnds, on_progress: OnProgress) -> Migration:
    begun, now = time.monotonic(), iso(wall_clock())
    with (
        sqlite_side.opened(ends.database) as source,
        postgres_side.opened(ends.url, make=True) as target,
    ):
        plan = ends.plan(source)
        known = check_source(source)
        check_alone(target, ends.machine)
        check_target(target, plan.tables, known)
        copy_rows(source, target, plan, on_progress)
        note_arrived(target.tx, source.where, now)
        checks = _all_same(compare(source, target, plan, on_progress))
        _mark_moving(source, target.where, now)
        target.commit()
        target.ease(plan.carried)
        note_moved(source.tx, target.where, now)
        source.commit()
        return _report(ends, source.where, target.where, checks, begun)


def _from_server(ends: MigrationEnds, on_progress: OnProgress) -> Migration:
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
                copy_rows(source, target, plan, on_progress)
                note_arrived(target.tx, source.where, now)
                checks = _all_same(compare(source, target, plan, on_progress))
                target.commit()
            _mark_moving(source, str(ends.database), now)
            try:
                replaced = _swap_in(part, ends.database, now)
            except Storage:  # the moved files are back in place
                note_staying(source.tx)
                source.commit()
                raise
        note_moved(source.tx, str(ends.database), now)
        source.commit()
        return _report(ends, source.where, str(ends.database), checks, begun, replaced)


def _mark_moving(source: StoreSide, where: str, now: str) -> None:
    """Mark the old store as moving before the new one counts: so both are never in use.

    After a kill at this point, neither is in use until the same command is given again.
    """
    note_moving(source.tx, where, now)
    source.commit()
    source.begin()


def _all_same(checks: list[TableCheck]) -> list[TableCheck]:
    """Return checks that all passed; raises Corrupt, so that nothing of the copy is kept."""
    if wrong := [check for check in checks if not check.same]:
        differences = "; ".join(differing(check) for check in wrong)
        raise Corrupt(
            f"The copy differs from the original: {differences}.",
            hint="Nothing was moved. Run fleetctl doctor to look for damage.",
        )
    return checks


def differing(check: TableCheck) -> str:
    """Return how a table of two stores differs."""
    rows = f"{check.source_rows:,} and {check.target_rows:,} rows"
    return f"{check.table} ({rows}, first at {check.first_difference})"


def _swap_in(part: Path, database: Path, now: str) -> Path | None:
    """Put the new database in its place; return where the previous one is."""
    try:
        with Moves() as moves:
            fold(database)
            old = files_of(database)
            aside = database.parent / unused((database.parent,), now) if old else None
            put_in_place(part, database, aside, moves)
    except OSError as error:
        raise Storage(
            f"The new database cannot be put in its place: {error}.",
            hint="Nothing was changed. Check the free space and the permissions.",
        ) from error
    confirm(database)
    return aside / database.name if aside else None


def check(ends: MigrationEnds, on_progress: OnProgress) -> Migration:
    """Compare both stores without changing either."""
    begun = time.monotonic()
    with (
        sqlite_side.opened(ends.database) as here,
        postgres_side.opened(ends.url, make=False) as server_side,
    ):
        plan = ends.plan(here)
        source, target = (here, server_side) if ends.there else (server_side, here)
        checks = compare(source, target, plan, on_progress)
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
