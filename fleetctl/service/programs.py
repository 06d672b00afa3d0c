"""Runs the programs of service managers and says what they complained of; decides nothing."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetd.protocol.errors import InvalidState

CALL_S = 60


class Outcome(NamedTuple):
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


def ask(*words: str) -> Outcome:
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
        return Outcome(127, "", f"{words[0]} cannot be run: {error}")
    return Outcome(done.returncode, done.stdout, done.stderr)


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
