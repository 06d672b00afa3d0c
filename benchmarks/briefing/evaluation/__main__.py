"""``python -m benchmarks.briefing.evaluation``: score briefings, beside what else could be given.

Plays recorded and scripted sessions, takes the briefing after each compaction at four budgets, and
looks for the facts that their agents need. It needs no network, and gives the same in every run.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from . import door, play, results
from .results import Result
from .scoring import score
from .session import BUDGETS, Session, chosen, facts, names
from .sources import OURS, baselines


def main() -> int:
    """Score and print; return exit status 1 when a promise is broken."""
    asked = _options()
    sessions = chosen(held_out=asked.held_out, only=asked.session)
    if not sessions:
        print(
            "No such session: those held out need --held-out, all others must not have it.",
            file=sys.stderr,
        )
        return 2
    logging.disable(logging.WARNING)  # an engine logs lost agents, which are part of sessions
    try:
        texts = trio.run(_briefings, sessions, asked.budget or list(BUDGETS))
    finally:
        logging.disable(logging.NOTSET)
    if asked.show:
        print("\n\n".join(f"===== {name} at {budget:,}\n{text}" for name, budget, text in texts))
        return 0
    found = [*_ours(sessions, texts), *_others(sessions)]
    if asked.json:
        print(json.dumps([msgspec.to_builtins(each) for each in found], indent=1))
    else:
        print(results.text(found))
    if asked.details:
        print("\n".join(["", *results.details(found)]))
    if asked.write:
        results.write(asked.write, found, "held out" if asked.held_out else "not held out")
    broken = results.broken(found)
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make eval-briefing", description=__doc__)
    parser.add_argument("--held-out", action="store_true", help="score the sessions kept back")
    parser.add_argument("--session", action="append", default=[], choices=names(), metavar="NAME")
    parser.add_argument("--budget", action="append", type=int, choices=BUDGETS)
    parser.add_argument("--show", action="store_true", help="print the briefings, score nothing")
    parser.add_argument("--details", action="store_true", help="print what is missing and wrong")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the tables between the marks of a page"
    )
    parser.add_argument("--json", action="store_true", help="print every score")
    parser.add_argument(
        "--list", action="version", version="\n".join(names()), help="print all names, and exit"
    )
    return parser.parse_args()


async def _briefings(
    sessions: dict[str, Session], budgets: list[int]
) -> list[tuple[str, int, str]]:
    return [
        (name, budget, await play.briefing(session, budget, door.opened))
        for name, session in sessions.items()
        for budget in budgets
    ]


def _ours(sessions: dict[str, Session], texts: list[tuple[str, int, str]]) -> Iterator[Result]:
    for name, budget, text in texts:
        yield Result(name, sessions[name].cli, OURS, budget, score(text, facts(name)))


def _others(sessions: dict[str, Session]) -> Iterator[Result]:
    for name, session in sessions.items():
        for source, baseline in baselines(name, session).items():
            for budget in BUDGETS:
                if (text := baseline(budget)) is not None:
                    yield Result(name, session.cli, source, budget, score(text, facts(name)))


if __name__ == "__main__":
    sys.exit(main())
