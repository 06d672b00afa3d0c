"""The machine, the time and the revision of a run; must not measure anything."""

import os
import platform
import subprocess
import time
from pathlib import Path

import apsw
import msgspec

ROOT = Path(__file__).parents[1]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures depend on; ``load`` is the load average over a minute before the run."""

    cpu: str
    cores: int
    kernel: str
    file_system: str
    python: str
    sqlite: str
    load: float


def this_machine(directory: Path) -> Machine:
    """Describe this machine and the file system of ``directory``."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        kernel=f"{platform.system()} {platform.release()}",
        file_system=_file_system(directory.resolve()),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        load=round(os.getloadavg()[0], 2),
    )


def now() -> str:
    """Return the date and time as ISO 8601, UTC, to the minute."""
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())


def revision() -> str:
    """Return the commit that is checked out, and whether files differ from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return f"{head} with changes" if _git("status", "--porcelain") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    asked = ["git", "-C", str(ROOT), *words]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the innermost mount that holds a directory."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    holding = [
        (len(place), kind) for _, place, kind, *_ in mounts if directory.is_relative_to(place)
    ]
    return max(holding)[1] if holding else "unknown"
