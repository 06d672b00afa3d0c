"""``python -m benchmarks.briefing``: agents after a compaction, with and without a briefing.

A live trial with your own key. Each run gives an agent CLI a task in a fresh home, with a fleetd of
its own, and compacts the window in the middle. The tests of the task decide whether it passed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from benchmarks.fleet import ROOT
from benchmarks.machine import now, revision

from .trial import environment, results, tasks
from .trial.arms import ARMS, Arm
from .trial.clis import CLIS
from .trial.processes import end_all
from .trial.results import Trial
from .trial.run import Outcome, Setting, one_run

INTERRUPTED = 130
# After this many void runs in a row, the next one would be void as well.
MOST_VOID = 3


class Refused(Exception):
    """Nothing can be run; the text says why, and what to do."""


def main() -> int:
    """Run and print; return exit status 1 when a run could not be judged."""
    asked = _options()
    try:
        setting, version = _setting(asked)
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    outcomes: list[Outcome] = []
    interrupted, began, of = False, now(), revision()
    try:
        with _interruptible():
            try:
                _run_all(setting, asked, outcomes)
            finally:
                end_all()
    except KeyboardInterrupt:
        interrupted = True
    trial = Trial(
        cli=asked.cli,
        version=version,
        model=asked.model,
        scripted=asked.scripted,
        revision=of,
        date=began,
        seed=asked.seed,
        interrupted=interrupted,
        outcomes=outcomes,
    )
    _write_results(trial, setting.logs, as_json=asked.json)
    if interrupted:
        return INTERRUPTED
    return 1 if any(each.verdict == "void" for each in outcomes) else 0


def _setting(asked: argparse.Namespace) -> tuple[Setting, str]:
    """Return the common settings of all runs, and the version of the CLI; raises Refused."""
    cli = CLIS[asked.cli]
    if (program := environment.find(cli, asked.program)) is None:
        if asked.program:
            raise Refused(f"{asked.program} is no program.")
        raise Refused(f"{cli.name} is not on the PATH. Install it, or use --program FILE.")
    if shutil.which("git") is None:
        raise Refused("git is not on the PATH. Install it: the agent works in a repository.")
    if not asked.scripted and os.environ.get("CI"):
        raise Refused("A trial costs money and never runs in CI. Try --scripted.")
    if not asked.scripted and (missing := environment.missing_key(cli)):
        raise Refused(f"{missing}. --scripted needs none.")
    version = environment.version(program)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    logs = (asked.logs or ROOT / ".bench" / "briefing" / stamp).absolute()
    logs.mkdir(parents=True, exist_ok=True)
    if any(logs.iterdir()):
        raise Refused(f"{logs} has files already. Name another directory with --logs.")
    setting = Setting(
        cli=cli,
        program=program,
        model=asked.model,
        scripted=asked.scripted,
        timeout_s=asked.timeout,
        logs=logs,
    )
    return setting, version


def _write_results(trial: Trial, logs: Path, *, as_json: bool) -> None:
    document = json.dumps(results.document(trial), indent=1)
    (logs / "trial.json").write_text(document + "\n", "utf-8")
    print(document if as_json else results.text(trial))
    print(f"Logs: {logs}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.briefing",
        description=__doc__,
        epilog=f"tasks:\n{_listed()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cli", required=True, choices=CLIS, help="the agent CLI to run")
    parser.add_argument(
        "--task",
        action="append",
        required=True,
        type=_task,
        metavar="TASK",
        help="a task, or all; may be repeated",
    )
    parser.add_argument(
        "--runs", type=_positive, default=10, metavar="N", help="runs of each arm (default: 10)"
    )
    parser.add_argument(
        "--arm", choices=ARMS, help="only with or only without a briefing (default: both, in turns)"
    )
    parser.add_argument("--model", help="the model (default: what the CLI takes)")
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=900,
        metavar="S",
        help="seconds for one run (default: 900)",
    )
    parser.add_argument(
        "--program", type=Path, metavar="FILE", help="the CLI (default: found on the PATH)"
    )
    parser.add_argument(
        "--scripted", action="store_true", help="a scripted model on this machine, without a key"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1, 1_000_000),
        help="decides which arm comes first in each turn (default: left to chance, and printed)",
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="keep logs here (default: .bench/briefing)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser.parse_args()


def _listed() -> str:
    return "\n".join(f"  {name:20} {tasks.task(name).title}" for name in tasks.names())


def _task(name: str) -> list[str]:
    known = tasks.names()
    if name == results.ALL:
        return known
    if name not in known:
        raise argparse.ArgumentTypeError(
            f"there is no task {name}; tasks are {', '.join(known)}, or all"
        )
    return [name]


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return value


def _run_all(setting: Setting, asked: argparse.Namespace, outcomes: list[Outcome]) -> None:
    """Run both arms of each task in turn, in random order."""
    chance = random.Random(asked.seed)
    wanted = list(dict.fromkeys(name for names in asked.task for name in names))
    arms: list[Arm] = [asked.arm] if asked.arm else list(ARMS)
    void = 0
    for number in range(1, asked.runs + 1):
        for name in wanted:
            for arm in chance.sample(arms, len(arms)):
                outcome = one_run(setting, tasks.task(name), arm, number)
                why = f" ({outcome.reason})" if outcome.reason else ""
                summary = f"{name}, {arm} {number}/{asked.runs}: {outcome.verdict}{why}"
                print(f"{summary}, {outcome.seconds:.0f} s", file=sys.stderr, flush=True)
                outcomes.append(outcome)
                void = void + 1 if outcome.verdict == "void" else 0
                if void == MOST_VOID:
                    print(f"{void} void runs in a row: the trial stops.", file=sys.stderr)
                    return


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end the trial; ignore later ones."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        print("Interrupted: ending what runs.", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
