"""Which program runs services on this machine, and what each must be able to do; runs nothing."""

import sys
from typing import Protocol

from . import launchd, systemd
from .setup import Setup
from .state import State
from .unit_files import UnitFile


class Service(Protocol):
    """What a module for a service manager offers; ``systemd`` says what each function does."""

    KIND: str
    TITLE: str

    def runs(self) -> bool:
        """Return whether the manager can be asked now."""

    def waiting(self) -> str:
        """Return why nothing takes effect now, and when it will."""

    def program(self) -> str:
        """Return the program that is started."""

    def installed(self) -> bool:
        """Return whether there are files of ours."""

    def installing(self, setup: Setup) -> list[UnitFile]:
        """Return what installing would write."""

    def uninstalling(self) -> list[UnitFile]:
        """Return what uninstalling would remove."""

    def summary(self, changes: list[UnitFile]) -> list[str]:
        """Return what of new files concerns this installation only."""

    def quiesce(self) -> None:
        """Stop what runs before its files are changed."""

    def enable(self) -> None:
        """Start it now, where that is possible, and at every login."""

    def disable(self) -> None:
        """Stop it, and let nothing start it again."""

    def forget(self) -> None:
        """Have the manager notice that the files are gone."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it until the next login or start."""

    def restart(self) -> None:
        """Start it anew."""

    def state(self) -> State:
        """Return how it stands."""

    def lingering(self) -> bool | None:
        """Return whether it outlives the last logout."""

    def linger(self) -> None:
        """Have it outlive the last logout."""


def service() -> Service | None:
    """Return the module for this machine's service manager; None where there is none."""
    if sys.platform == "darwin":
        return launchd if launchd.is_here() else None
    return systemd if systemd.is_here() else None
