"""``python -m benchmarks.compare BASE``: the table of another revision beside today's."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import changes, options
from .changes import Change
from .rows import Run
from .sides import NotMeasured, Side, both

BLOCKS = 5
# Measured with each group: the same code on both sides, whose change is the noise at that time.
CONTROL = "control"


def main() -> int:
    """Measure both in turns and print the changes; exit status 1 when BASE is no revision."""
    chosen = _options()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fleetd-base-", dir=chosen.directory) as name:
        try:
            with both(chosen.base, Path(name), own=chosen.base_benchmarks) as sides:
                found, missing = _compare(sides, chosen, Path(name))
        except subprocess.CalledProcessError as error:
            print(f"{chosen.base} cannot be measured: {error}", file=sys.stderr)
            return 1
    seconds = time.monotonic() - begun
    if chosen.json:
        plain = {
            "base": chosen.base,
            "seconds": round(seconds, 1),
            "seed": chosen.seed,
            "missing": missing,
        }
        print(json.dumps({**plain, "changes": msgspec.to_builtins(found)}, indent=2))
    else:
        print("\n".join([changes.table(found), "", *_remarks(chosen, missing, seconds)]))
    return 0


def _options() -> argparse.Namespace:
    parser = options.parser("python -m benchmarks.compare", __doc__ or "")
    parser.add_argument("base", metavar="BASE", help="the revision to compare with")
    parser.add_argument(
        "--base-benchmarks",
        action="store_true",
        help="measure BASE with its own benchmarks, for one from before modules were renamed",
    )
    parser.add_argument(
        "--blocks",
        type=int,
        default=BLOCKS,
        help=f"how often each of the two gets its turn (default: {BLOCKS})",
    )
    return parser.parse_args()


def _compare(
    sides: tuple[Side, Side], chosen: argparse.Namespace, scratch: Path
) -> tuple[list[Change], list[str]]:
    """Measure group by group, so that the two revisions of a row are minutes apart at most."""
    found: list[Change] = []
    missing: list[str] = []
    order = random.Random(chosen.seed)
    for group in chosen.only:
        wanted = ["--only", group if chosen.base_benchmarks else f"{CONTROL},{group}"]
        wanted += ["--quick"] if chosen.quick else ["--share", f"{1 / chosen.blocks:g}"]
        wanted += ["--directory", str(chosen.directory)] if chosen.directory else []
        print(f"{group} ...", end=" ", file=sys.stderr, flush=True)
        try:
            old, new = _in_turns(sides, wanted, chosen.blocks, scratch, order)
        except NotMeasured as error:
            missing.append(f"{group}, {error}")
        else:
            found += [_named(each, group) for each in changes.changes(old, new)]
    print(file=sys.stderr)
    return found, missing


def _named(found: Change, group: str) -> Change:
    """Return a change with the group's name added to a control."""
    if not found.name.startswith(CONTROL) or group == CONTROL:
        return found
    return msgspec.structs.replace(found, name=f"{found.name} ({group})")


def _in_turns(
    sides: tuple[Side, Side],
    wanted: Sequence[str],
    blocks: int,
    scratch: Path,
    order: random.Random,
) -> tuple[list[Run], list[Run]]:
    """Measure both, block after block, in random order, as a machine may slow down."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    turns = [0, 1]
    for _ in range(blocks):
        order.shuffle(turns)
        for which in turns:
            runs[which].append(sides[which].measure(wanted, scratch))
    return runs


def _remarks(chosen: argparse.Namespace, missing: Sequence[str], seconds: float) -> list[str]:
    return [
        f"old is {chosen.base}, new what lies in this directory; blocks of each: {chosen.blocks},",
        f"in an order left to chance (seed {chosen.seed}), in {seconds:.0f} s.",
        "old and new are medians of the blocks, the spread is that",
        "of the pairs of blocks. A change is marked when every block of one lies beyond every",
        "block of the other, and by 5 % or more in the middle;",
        f"with fewer than {changes.BLOCKS_AT_LEAST} blocks nothing is.",
        "A control is code that both have in common: its change is the noise.",
        *(f"Not compared: {why}." for why in missing),
    ]


if __name__ == "__main__":
    sys.exit(main())
