"""``python -m tests.chaos``: runs campaigns in their long form and records the results."""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos import table
from tests.chaos.campaign import Campaign, CannotRun, Outcome, carry_out

GREEN, RED = 0, 1
ALL = "all"


def main() -> int:
    """Run the requested campaigns; the exit status is 1 when one turned red."""
    parser = _parser()
    options = parser.parse_args()
    known = {campaign.name: campaign for campaign in table.available()}
    if not options.names:
        _list(known)
        return GREEN
    names = [*known, *_suites()] if options.names == [ALL] else options.names
    if unknown := [name for name in names if name not in known and name not in _suites()]:
        parser.error(f"no campaign is named {unknown[0]}; there are: {', '.join(known)}")
    if options.planted == ALL:
        return _see_defects([known[name] for name in names if name in known], options.seed)
    if options.planted and (len(names) > 1 or options.planted not in known[names[0]].planted):
        parser.error(
            f"--planted wants 'all', or one campaign and one of: "
            f"{', '.join(known[names[0]].planted)}"
        )
    return max(_run(name, known.get(name), options) for name in names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Tries to break what fleetd promises. Without a name it lists the campaigns.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="campaigns, or 'all'")
    add("--seed", type=int, help="by default the time; a seed repeats a run")
    add("--count", type=int, help="how many rounds; by default the long form's number")
    add("--round", type=int, help="only the round of this number")
    add("--planted", metavar="DEFECT", help="plant a defect, which must turn it red; or 'all'")
    add("--keep", action="store_true", help="leave the files of a red run to be looked at")
    add("--record", action="store_true", help="write the result into docs/reliability.md")
    return parser


def _list(known: dict[str, Campaign]) -> None:
    for each in known.values():
        print(f"{each.name:14} {each.what} ({each.long:,} {each.unit})")
        for defect, rounds in each.planted.items():
            print(f"{'':14}   --planted {defect}  (red within {rounds})")


def _see_defects(campaigns: list[Campaign], seed: int | None) -> int:
    """Plant every defect; return 1 when a campaign does not detect one."""
    unseen = []
    for campaign in campaigns:
        for defect, count in campaign.planted.items():
            try:
                outcome = carry_out(campaign, seed=_seed(seed), count=count, planted=defect)
            except CannotRun as reason:
                print(f"  cannot run here: {reason}")
                continue
            print(f"  {'seen' if outcome.red else 'NOT SEEN'} in {outcome.seconds:.0f} s")
            unseen += [] if outcome.red else [f"{campaign.name} --planted {defect}"]
    print(f"not seen: {', '.join(unseen)}" if unseen else "every defect was seen")
    return RED if unseen else GREEN


def _seed(given: int | None) -> int:
    return time.time_ns() % 1_000_000 if given is None else given


def _suites() -> list[str]:
    return [row.tests for row in table.ROWS if row.tests]


def _run(name: str, campaign: Campaign | None, options: argparse.Namespace) -> int:
    if campaign is None:
        return _run_tests(name, record=options.record)
    count = options.count or (
        campaign.planted[options.planted] if options.planted else campaign.long
    )
    try:
        outcome = carry_out(
            campaign,
            seed=_seed(options.seed),
            count=count,
            planted=options.planted,
            judged=True,
            only=options.round,
            keep=options.keep,
        )
    except CannotRun as reason:
        print(f"{name}: cannot run here: {reason}")
        return RED if options.record else GREEN
    _tell(outcome, campaign)
    if options.record and not options.planted:
        _record_outcome(outcome, campaign)
    return RED if outcome.red else GREEN


def _tell(outcome: Outcome, campaign: Campaign) -> None:
    figures = "".join(f", {number:,g} {name}" for name, number in outcome.figures.items())
    verdict = f"RED\n{outcome.red}" if outcome.red else "green"
    print(
        f"{campaign.name}: {outcome.rounds:,} {campaign.unit} in {outcome.seconds:.0f} s{figures}: "
        f"{verdict}"
    )


def _record_outcome(outcome: Outcome, campaign: Campaign) -> None:
    """Record the outcome, even a red one: the table reports results, not expectations."""
    figures = {key: round(number, 1) for key, number in outcome.figures.items()}
    red = outcome.red.splitlines()[0] if outcome.red else None
    _record(outcome.campaign, outcome.rounds, campaign.unit, figures, outcome.seed, red)


def _run_tests(paths: str, *, record: bool) -> int:
    """Run a row's tests and count them."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths.split()]
    done = subprocess.run(command, cwd=table.ROOT, capture_output=True, text=True)
    last = done.stdout.strip().rpartition("\n")[2]
    passed = re.search(r"(\d+) passed", last)
    print(f"{paths}: {last}")
    if done.returncode or passed is None:
        print(done.stdout, file=sys.stderr)
        return RED
    if record:
        skipped = re.search(r"(\d+) skipped", last)
        _record(
            paths, int(passed[1]), "tests", {"skipped": int(skipped[1])} if skipped else {}, None
        )
    return GREEN


def _record(
    name: str,
    rounds: int,
    unit: str,
    figures: dict[str, float],
    seed: int | None,
    red: str | None = None,
) -> None:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    result = {"date": today, "rounds": rounds, "unit": unit, "figures": figures, "seed": seed}
    table.record(name, result | ({"red": red} if red else {}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
