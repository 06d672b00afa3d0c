"""``python -m benchmarks.requests``: the characters that fleetd adds to requests to a model.

Each agent CLI plays one script against a model on this computer: without fleetd, with its hooks,
with its hooks among other agents, and with its tools. npm installs the CLIs into .agents.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from tests.agents.cost import CLIS, Cost, measured, record
from tests.agents.packages import NotHere

from ..machine import now, revision
from .page import Measured, sentence, text, write


def main() -> int:
    """Measure and print, or write into the pages."""
    options = _options()
    found = _saved(options.saved) if options.saved else _measure(options.only)
    if options.json:
        options.json.write_bytes(msgspec.json.encode(found))
    if options.write:
        write(options.write, found)
    print(f"{text(found)}\n\n{sentence(found)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description=__doc__)
    names = [kind.harness for kind in CLIS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="CLI", help="these CLIs only"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured")
    parser.add_argument(
        "--saved", type=Path, metavar="FILE", help="measure nothing: read what --json kept"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DIRECTORY",
        help="put the tables and the sentence into docs/performance.md and README.md below it",
    )
    return parser.parse_args()


def _saved(path: Path) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def _measure(names: list[str]) -> Measured:
    begun, date, of = time.monotonic(), now(), revision()
    costs: list[Cost] = []
    absent: dict[str, str] = {}
    for kind in CLIS:
        if kind.harness in names:
            try:
                costs.append(measured(kind, record))
            except NotHere as reason:
                absent[kind.harness] = str(reason)
    seconds = round(time.monotonic() - begun, 1)
    return Measured(costs=costs, absent=absent, date=date, revision=of, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
