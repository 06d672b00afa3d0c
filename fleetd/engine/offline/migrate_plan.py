"""Plan of a store migration: which store goes where, and what is refused."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...config import Config, without_password
from ...domain.system.relocation import StoreIdentity, identity
from ...protocol.errors import InvalidParams, InvalidState
from ...protocol.migration import MigrationRequest
from ...store.machine_identity import machine_id
from ...store.transfer.copy import StoreSide, Table, TransferPlan, size
from ...store.transfer.postgres_side import PostgresSide
from ...store.transfer.sqlite_side import SqliteSide

LOCAL = "sqlite"
# What a store has before anybody used it.
BARE = {"store_meta", "counters", "tallies", "machines"}


class MigrationEnds(msgspec.Struct, frozen=True):
    """The server and the database file of this machine, and whether the move goes to the server."""

    url: str
    database: Path
    machine: str
    there: bool

    def plan(self, local: SqliteSide) -> TransferPlan:
        """Return what goes along."""
        return TransferPlan(
            tables=tuple(local.tables()),
            counted=frozenset(local.counted()),
            machine=self.machine,
            shared=self.there,
        )

    @property
    def setting(self) -> str:
        """Return what ``store`` is to be from now on, without any password."""
        return bare(self.url) if self.there else ""


def ends_of(config: Config, request: MigrationRequest) -> MigrationEnds:
    """Return what an errand and the settings mean; raises InvalidParams for what has no sense."""
    to, source = request.to or config.store, request.source
    there = to != LOCAL
    url = to if there else (source or config.store)
    if not url:
        raise InvalidParams(
            "Nothing says which server is meant: the setting store is empty.",
            hint="Name it: --to postgresql://USER@HOST/DATABASE, or --from with --to sqlite.",
        )
    if there and source not in ("", LOCAL):
        raise InvalidParams(
            "A store moves between this machine's database and a server, not between two servers.",
            hint="pg_dump and pg_restore move a database from server to server.",
        )
    return MigrationEnds(url, config.database.resolve(), machine_id(config.database.parent), there)


def bare(url: str) -> str:
    """Return a URL without its password, as it can stand in a configuration."""
    shown = without_password(url).replace(":***@", "@")
    return re.sub(r"(?i)[&?\s]?\bpassword\s*=\s*\*\*\*", "", shown)


def check_source(side: StoreSide) -> StoreIdentity:
    """Return what the store is that is to move; raises InvalidState for one that moved away."""
    known = identity(side.tx)
    if known.moved_to is not None:
        raise InvalidState(
            f"{side.where} was moved to {known.moved_to.where} at {known.moved_to.at} already.",
            hint="To move what is there now, name it as the source; "
            "fleetctl migrate --undo goes on with this one instead.",
        )
    return known


def check_target(side: StoreSide, tables: Sequence[Table], source: StoreIdentity) -> None:
    """Raise InvalidState when a target holds what is nowhere else.

    What came from this same store and was not used since, or was moved back to it, is replaced.
    """
    known = identity(side.tx)
    if known.epoch == source.epoch and (known.arrived or known.moved_to):
        return
    if held := _held(side, tables):
        raise InvalidState(
            f"{side.where} holds another store already: {', '.join(held)}.",
            hint="Name a database, or a schema, that is empty; or move that one away first.",
        )


def _held(side: StoreSide, tables: Iterable[Table]) -> list[str]:
    """Return how many rows a store has of what somebody recorded."""
    counts = {table.name: size(side, table) for table in tables if table.name not in BARE}
    return [f"{number:,} {name}" for name, number in sorted(counts.items()) if number]


def check_alone(side: PostgresSide, machine: str) -> None:
    """Raise InvalidState while other machines are at work with a shared store."""
    if names := side.at_work(machine):
        raise InvalidState(
            f"{side.where} is in use: fleetd runs on {', '.join(names)}.",
            hint="Stop it there: fleetctl daemon stop. One that was killed counts for a minute.",
        )
