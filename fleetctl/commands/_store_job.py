"""Store jobs: run the daemon's program, of this version, on a store.

Only that program touches a store, also while no daemon runs.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fleetd.protocol.errors import Internal, from_wire
from fleetd.protocol.migration import MigrationReply, MigrationRequest

from ..client import Progress

_ROOT = Path(__file__).resolve().parents[2]


def carry(
    errand: MigrationRequest, draw: Callable[[Progress], None] | None = None
) -> MigrationReply:
    """Return what came of an errand; raises the error that is told."""
    sys.stdout.flush()
    with subprocess.Popen(
        [sys.executable, "-m", "fleetd", "--migrate"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as fleetd:
        if fleetd.stdin is None or fleetd.stdout is None:
            raise AssertionError("both are pipes")
        fleetd.stdin.write(msgspec.json.encode(errand) + b"\n")
        fleetd.stdin.close()
        last = _followed(fleetd.stdout, draw)
    if last is None:
        raise Internal(
            f"fleetd ended without a word (exit status {fleetd.returncode}).",
            hint="What it printed above says more. What was not finished is not there.",
        )
    if last.error is not None:
        raise from_wire(last.error["code"], last.error["message"], last.error["data"])
    return last


def _followed(
    lines: Iterator[bytes], draw: Callable[[Progress], None] | None
) -> MigrationReply | None:
    """Read to the end, show how far it is, and return what was said last."""
    last = None
    for line in lines:
        said = msgspec.json.decode(line, type=MigrationReply)
        if said.progress is None:
            last = said
        elif draw is not None:
            what, done, total = said.progress
            draw(Progress(what, done, total))
    return last
