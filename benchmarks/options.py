"""The command line of the benchmarks; must not measure anything."""

import argparse
import random
from pathlib import Path

from .groups import GROUPS, explained, named


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the common options of a run and a comparison."""
    made = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=f"groups:\n{explained()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_argument(
        "--only",
        type=_groups,
        metavar="GROUP[,GROUP]",
        default=list(GROUPS),
        help="measure these groups only",
    )
    made.add_argument(
        "--quick", action="store_true", help="a few runs of each path, to try the script"
    )
    made.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1, 1_000_000),
        help="decides who comes first in each turn (default: left to chance, and printed)",
    )
    made.add_argument(
        "--directory", type=Path, help="a directory on the disk to measure (default: temporary)"
    )
    return made


def share(text: str) -> float:
    """Return a number above 0 and up to 1."""
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"expected more than 0 and up to 1, got {text}")
    return value


def _groups(text: str) -> list[str]:
    try:
        return list(named(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
