"""Newest checkpoints: reads them as stored, after a check for files that have no row."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw

from ...domain.checkpoints.checkpoints import StoredLatest, latest_stored
from ...store.files.layout import Stamp
from ...store.files.record_files import RecordFiles

# The most missions to remember; beyond that, the cache is cleared.
_MOST = 1_000


class ComparedMission(msgspec.Struct, frozen=True):
    """The state of a mission when each of its files had a row.

    While its directory, its newest row and its number of rows are the same, no file was added and
    no row removed.
    """

    stamp: Stamp
    newest: str
    rows: int


class LatestCheckpoints:
    """Reads newest checkpoints, in one transaction if nothing was lost.

    The cache is compared with the directory and the rows each time.
    """

    def __init__(
        self,
        read: Callable[..., Awaitable[Any]],
        files: RecordFiles,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self._read = read
        self._files = files
        self._in_thread = in_thread
        self._compared: dict[str, ComparedMission] = {}

    async def stored(self, mission_id: str) -> Raw | None:
        """Return the JSON of a mission's newest checkpoint.

        None if its copies have to be checked, and for a shortened id.
        """
        # The directory is looked at first: a row comes before its file.
        found: StoredLatest | None
        known = self._compared.get(mission_id)
        if known is not None and self._files.stamp(mission_id) == known.stamp:
            found = await self._read(latest_stored, mission_id)
            if found and (found.id, found.rows) == (known.newest, known.rows):
                return found.json
        try:
            listing = await self._in_thread(lambda: self._files.list(mission_id))
        except OSError:  # reported by the check of the copies
            return None
        found = await self._read(latest_stored, mission_id, listing.files | listing.blocked)
        if found is None:
            return None
        if listing.stamp is not None:
            self._remember(mission_id, ComparedMission(listing.stamp, found.id, found.rows))
        return found.json

    def _remember(self, mission_id: str, compared: ComparedMission) -> None:
        if len(self._compared) >= _MOST:
            self._compared.clear()
        self._compared[mission_id] = compared
