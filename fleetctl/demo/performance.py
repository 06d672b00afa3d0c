"""One run of the demo from the curtain to the exit status; must not know the story."""

import sys
import time
from argparse import Namespace

import msgspec

from fleetd.protocol.errors import FleetError

from ..output import console
from .checks import Verdict
from .narrator import Narrator
from .sandbox import Stage, StageFailed, open_stage
from .tour import Tour


def run(args: Namespace) -> int:
    """Play the demo; return 0 when everything came out as it must, else 1."""
    narrator = Narrator(sys.stderr if args.json else sys.stdout)
    began = time.monotonic()
    try:
        with open_stage(keep=args.keep) as stage:
            verdicts = _play(stage, narrator)
    except StageFailed as error:
        verdicts = [_broken_off(error)]
    else:
        if args.keep:
            narrator.tell(f"The directory stays: {stage.directory}")
    return _conclude(args, narrator, verdicts, time.monotonic() - began)


def _play(stage: Stage, narrator: Narrator) -> list[Verdict]:
    try:
        verdicts = Tour(stage, narrator).play()
    except (StageFailed, FleetError) as error:
        verdicts = [_broken_off(error)]
    narrator.check(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        narrator.tell("The last lines that fleetd and the agents logged:")
        narrator.log(stage.log_tail())
    return verdicts


def _broken_off(error: Exception) -> Verdict:
    return Verdict(check="the demo runs to its end", ok=False, detail=str(error))


def _conclude(args: Namespace, narrator: Narrator, verdicts: list[Verdict], seconds: float) -> int:
    """Say how it came out and return the exit status."""
    failed = sum(not verdict.ok for verdict in verdicts)
    narrator.tell(
        f"{len(verdicts) - failed} of {len(verdicts)} checks are ok, after {seconds:.1f} s."
    )
    if args.json:
        checks = msgspec.to_builtins(verdicts)
        console.print_json({"ok": not failed, "seconds": round(seconds, 1), "checks": checks})
    return 1 if failed else 0
