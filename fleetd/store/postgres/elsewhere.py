"""What a store on a server says of things that only a file of one's own has; knows no table."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from ...domain.core.text import without_nul
from ...host.clock import wall_clock
from ...protocol.requests.system import Check
from ..api import CopyRefused

T = TypeVar("T")


class Elsewhere:
    """The part of a store whose bytes rest on another machine, or in another program's care."""

    kind: Literal["postgresql"] = "postgresql"
    now_ms: Callable[[], int]
    reserve = 0
    """The room on this machine's disk is not what it needs."""

    def from_wall(self, ms: int) -> int:
        """Return the time of the fleet for one that this machine's own clock told."""
        return ms + self.now_ms() - wall_clock()

    def held(self, value: T) -> T:
        """Return a request as its texts come back from the store, which holds no NUL in any."""
        return without_nul(value)

    def checks(self) -> list[Check]:
        """Return what of the store's upkeep can be looked at from here, which is nothing."""
        return []

    async def copy_to(self, target: Path) -> int:
        """Refuse: the server's own means make its backups."""
        raise CopyRefused(
            f"The store is on a server, which fleetd does not copy into {target}",
            "Back it up where it runs, with pg_dump; or take everything into a file of this "
            "machine: fleetctl migrate",
        )
