"""Cache of values made from a mission's sorties, kept while none of these is written.

No caller has to invalidate it: triggers of the writer's own connection see every row of a sortie
that is written, whatever writes it, even a foreign key. Other connections' commits show in
``data_version``.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ...domain.core.tx import Sized

K = TypeVar("K", bound=Sized)
MOST_MISSIONS = 64
MOST_BYTES = 4_000_000
_WRITES = {
    "INSERT": "NEW.mission_id",
    "UPDATE": "OLD.mission_id, NEW.mission_id",
    "DELETE": "OLD.mission_id",
}


class KeptSorties:
    """Values by mission, each made from the mission's sorties as last committed.

    A value made from sorties that the same transaction has written is not kept. The transaction may
    be rolled back, wholly or to a savepoint, and this class is not notified of that.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._values: dict[str, Any] = {}
        self._bytes = 0
        self._uncommitted: set[str] = set()
        self._version = -1
        connection.create_scalar_function("sortie_written", self._written)
        connection.set_commit_hook(self._committed)
        self.watch()

    def watch(self) -> None:
        """Drop all values, and have the triggers see every write from now on.

        SQLite drops the triggers when ``temp_store`` is set: call this afterwards.
        """
        self._values.clear()
        self._bytes = 0
        for what, mission_columns in _WRITES.items():
            self._connection.execute(
                f"CREATE TEMP TRIGGER IF NOT EXISTS sortie_{what} AFTER {what} ON main.sorties"
                f" BEGIN SELECT sortie_written({mission_columns}); END"
            )

    def __call__(self, mission_id: str, make: Callable[[], K]) -> K:
        """Return the value of a mission; make it unless it is kept."""
        (version,) = next(self._connection.execute("PRAGMA data_version"))
        if version != self._version:
            self._version, self._bytes = version, 0
            self._values.clear()
        known: K | None = self._values.get(mission_id)
        if known is not None:
            return known
        value = make()
        if mission_id not in self._uncommitted:
            self._keep(mission_id, value)
        return value

    def _keep(self, mission_id: str, value: Sized) -> None:
        self._values[mission_id] = value
        self._bytes += value.size
        while self._bytes > MOST_BYTES or len(self._values) > MOST_MISSIONS:
            self._drop(next(iter(self._values)))

    def _drop(self, mission_id: str) -> None:
        if (dropped := self._values.pop(mission_id, None)) is not None:
            self._bytes -= dropped.size

    def _written(self, *mission_ids: Any) -> None:
        for mission_id in mission_ids:
            self._drop(mission_id)
            self._uncommitted.add(mission_id)

    def _committed(self) -> bool:
        self._uncommitted.clear()
        return False  # True would roll it back
