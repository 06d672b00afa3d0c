"""Service managers: what each offers, the state of a service, and how their programs are run."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetd.protocol.errors import InvalidState

if TYPE_CHECKING:
    from .setup import Setup
    from .unit_files import UnitFile

CALL_S = 60


class ProgramResult(NamedTuple):
    """What a program left behind."""

    status: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """Return whether it succeeded."""
        return self.status == 0

    @property
    def complaint(self) -> str:
        """Return what it said was wrong."""
        lines = (self.err or self.out).strip().splitlines()
        return lines[-1] if lines else f"status {self.status}"


def there(program: str) -> bool:
    """Return whether a program is on the PATH."""
    return shutil.which(program) is not None


def ask(*words: str) -> ProgramResult:
    """Run a program and return what it said; one that is missing or hangs has failed."""
    # Imported here: most that load this module need it never.
    import subprocess

    try:
        done = subprocess.run(
            words,
            env={**os.environ, **_session()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ProgramResult(127, "", f"{words[0]} cannot be run: {error}")
    return ProgramResult(done.returncode, done.stdout, done.stderr)


def tell(*words: str) -> None:
    """Run a program that must succeed; raises InvalidState with what it complained of."""
    outcome = ask(*words)
    if not outcome.ok:
        raise InvalidState(
            f"{' '.join(words)} failed: {outcome.complaint}",
            hint="Run it by hand to see more.",
        )


def properties(*words: str) -> Mapping[str, str]:
    """Return ``Name=value`` lines that a program prints; empty when it fails."""
    outcome = ask(*words)
    lines = outcome.out.splitlines() if outcome.ok else ()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _session() -> dict[str, str]:
    """Return how to find this user's manager where nobody said so, as after su or in cron."""
    runtime = Path(f"/run/user/{os.getuid()}")
    if "XDG_RUNTIME_DIR" in os.environ or not runtime.is_dir():
        return {}
    return {"XDG_RUNTIME_DIR": str(runtime)}


class ServiceState(NamedTuple):
    """How a service stands. ``manager`` tells whether the program that runs services runs itself.

    ``enabled`` means that it starts by itself, ``listening`` that its first client starts it;
    ``lingering`` that it stays when its user is not logged in. None where that is not known.
    """

    kind: str
    manager: bool
    installed: bool
    files: Sequence[str] = ()
    enabled: bool | None = None
    active: bool = False
    listening: bool = False
    condition: str = ""
    lingering: bool | None = None
    log: str = ""


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

    def installing(self, setup: "Setup") -> "list[UnitFile]":
        """Return what installing would write."""

    def uninstalling(self) -> "list[UnitFile]":
        """Return what uninstalling would remove."""

    def summary(self, changes: "list[UnitFile]") -> list[str]:
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

    def state(self) -> ServiceState:
        """Return how it stands."""

    def lingering(self) -> bool | None:
        """Return whether it outlives the last logout."""

    def linger(self) -> None:
        """Have it outlive the last logout."""
