"""Inventory: what lies in an owner's directory, compared by names with its rows."""

import logging
from collections.abc import Iterable

import msgspec

from ...domain.artifacts import inventory
from ...domain.artifacts.inventory import RowNames
from ...protocol.types import Noun
from ...store.files.layout import Listing
from ..engine import Engine

log = logging.getLogger("fleetd")


class Inventory(msgspec.Struct, frozen=True):
    """The rows and the files of one mission or run; files are those in this machine's directory."""

    noun: Noun
    rows: RowNames
    listing: Listing

    @property
    def owner_id(self) -> str:
        """Return whose they are."""
        return self.rows.owner_id

    @property
    def named(self) -> frozenset[str]:
        """Return the records whose names are taken, by a file or by something in its place."""
        return self.listing.files | self.listing.blocked

    @property
    def missing(self) -> frozenset[str]:
        """Return the records that must have a file here and have none."""
        return self.rows.filed - self.listing.files

    @property
    def orphans(self) -> frozenset[str]:
        """Return the records that have a file and no row."""
        return self.named - self.rows.rows

    @property
    def misplaced(self) -> frozenset[str]:
        """Return the records with a file here that another machine keeps."""
        return self.listing.files & self.rows.elsewhere

    @property
    def deleted(self) -> frozenset[str]:
        """Return the records that are deleted and whose file is still there."""
        return self.named & (self.rows.rows - self.rows.live)

    @property
    def latest_is_right(self) -> bool:
        """Whether ``latest.json`` is the newest record, as far as names tell."""
        latest = self.rows.newest
        return latest in self.listing.files and not self.listing.latest_trouble(latest)


async def rows_of(engine: Engine, noun: Noun, owner_id: str) -> RowNames:
    """Return the names of the records of one owner that have a row."""
    (rows,) = await engine.read(inventory.names, noun, [owner_id])
    return rows


async def take(engine: Engine, noun: Noun, owner_id: str) -> Inventory:
    """Compare the rows and the files of one owner; raises OSError for an unreadable directory.

    The rows are read last: they come before the files.
    """
    listing = await engine.outbox.in_thread(lambda: engine.backups[noun].list(owner_id))
    return Inventory(noun, await rows_of(engine, noun, owner_id), listing)


async def take_all(engine: Engine, noun: Noun, owner_ids: Iterable[str]) -> list[Inventory]:
    """Compare the rows and the files of several owners; one that is unreadable is left alone."""
    backups, listings = engine.backups[noun], dict[str, Listing]()

    def look() -> None:
        for owner_id in owner_ids:
            try:
                listings[owner_id] = backups.list(owner_id)
            except OSError as error:
                log.warning("The %s files of %s cannot be read: %s", noun, owner_id, error)

    await engine.outbox.in_thread(look)
    every = await engine.read(inventory.names, noun, list(listings))
    return [Inventory(noun, rows, listings[rows.owner_id]) for rows in every]
