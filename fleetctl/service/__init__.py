"""fleetd as a service of this user: systemd, launchd, or a plain process in the background."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .manager import Service


def service() -> "Service | None":
    """Return the module for this machine's service manager; None where there is none."""
    # Imported here: few commands need a service manager, and only one of the two.
    if sys.platform == "darwin":
        from . import launchd

        return launchd if launchd.is_here() else None
    from . import systemd

    return systemd if systemd.is_here() else None
