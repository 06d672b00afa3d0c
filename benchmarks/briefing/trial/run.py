"""One run: a fresh home with a daemon of its own, a task, a compaction, and the task's tests."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from fleetd.protocol.errors import FleetError

from ...fleet import Fleet, running
from . import arms, environment, tasks
from .arms import Arm
from .clis import Cli, Failed, Place
from .processes import TRIAL, TimedOut
from .tasks import Task

Verdict = Literal["passed", "failed", "void"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run. A void run has no verdict, and ``reason`` says why."""

    task: str
    arm: Arm
    number: int
    verdict: Verdict
    reason: str | None
    briefings: int
    seconds: float
    cost_usd: float | None
    logs: str


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The common settings of all runs of a trial."""

    cli: type[Cli]
    program: Path
    model: str | None
    scripted: bool
    timeout_s: float
    logs: Path


class Judged(msgspec.Struct, kw_only=True):
    """The findings of a run, including one that ends early."""

    verdict: Verdict = "void"
    reason: str | None = None
    briefings: int = 0
    cost_usd: float | None = None


def one_run(setting: Setting, task: Task, arm: Arm, number: int) -> Outcome:
    """Let an agent do a task with a compaction in the middle, and test its result."""
    begun = time.monotonic()
    logs = setting.logs / f"{task.name}-{arm}-{number:02}"
    logs.mkdir(parents=True)
    judged = Judged()
    with _place(setting, task, logs) as (place, fleet):
        try:
            _work(setting, task, arm, place, fleet, judged)
        except Failed as failure:
            judged.reason = str(failure)
        except TimedOut:
            judged.reason = f"the compaction was not reached within {setting.timeout_s:g} s"
        finally:
            _keep_work(place)
    outcome = Outcome(
        task=task.name,
        arm=arm,
        number=number,
        verdict=judged.verdict,
        reason=judged.reason,
        briefings=judged.briefings,
        seconds=round(time.monotonic() - begun, 1),
        cost_usd=judged.cost_usd,
        logs=str(logs),
    )
    (logs / "outcome.json").write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
    return outcome


@contextmanager
def _place(setting: Setting, task: Task, logs: Path) -> Iterator[tuple[Place, Fleet]]:
    plain = environment.plain()
    theirs, secrets = environment.no_network(), list[str]()
    if not setting.scripted:
        theirs, secrets = environment.with_key(setting.cli)
    with tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True) as name:
        root = Path(name).resolve()
        for part in ("home", "project", "tmp"):
            (root / part).mkdir()
        environment.link(setting.cli, setting.program, root / "bin")
        tasks.lay_out(task, root / "project")
        # The daemon gets no key.
        with running(root / "home", plain | TRIAL) as fleet:
            ours = {
                "PATH": f"{root / 'bin'}:{plain.get('PATH', os.defpath)}",
                "TMPDIR": str(root / "tmp"),
            }
            place = Place(
                root=root,
                logs=logs,
                env=plain | _fleets(fleet) | theirs | ours,
                deadline=time.monotonic() + setting.timeout_s,
                secrets=secrets,
            )
            yield place, fleet


def _fleets(fleet: Fleet) -> dict[str, str]:
    """Return the variables of a run's fleet, and its home in place of the user's."""
    names = ("FLEET_", "FLIGHTLINE_", "HOME")
    return {name: value for name, value in fleet.env.items() if name.startswith(names)}


def _work(
    setting: Setting, task: Task, arm: Arm, place: Place, fleet: Fleet, judged: Judged
) -> None:
    """Play the task, and fill in the findings; raises Failed, TimedOut."""
    with ExitStack() as stack:
        url = None
        if setting.scripted:
            from .scripted import serving_model

            url = stack.enter_context(serving_model(setting.cli.name, task, place.logs))
        cli: Cli = setting.cli(place, setting.model, url)
        try:
            _play(task, arm, place, fleet, cli, judged)
        finally:
            judged.cost_usd = None if url else cli.cost_usd


def _play(task: Task, arm: Arm, place: Place, fleet: Fleet, cli: Cli, judged: Judged) -> None:
    arms.switch_on(cli.name, place.env)
    for number, text in enumerate(task.before, 1):
        cli.prompt(number, text.strip())
    if tasks.check(task, place.project)[0]:
        raise Failed("the task was done before the compaction")
    _keep_context(fleet, place)
    if arm == "off":
        arms.switch_off(fleet)
    late = False
    try:
        cli.compact([text.strip() for text in task.after])
    except TimedOut:
        # Agents that loop after a compaction are part of what a trial measures.
        if not (late := cli.compacted):
            raise
    if not cli.compacted:
        raise Failed("there was no compaction")
    recoveries = fleet.call("recovery.list")["recoveries"]
    judged.briefings = sum(each["briefed_at"] is not None for each in recoveries)
    if arm == "on" and not judged.briefings:
        raise Failed("the session got no briefing, although it should")
    if arm == "off" and judged.briefings:
        raise Failed("the session got a briefing, although it should not")
    passed, output = tasks.check(task, place.project)
    place.keep("check.log", output)
    judged.verdict = "passed" if passed else "failed"
    judged.reason = "out of time" if late else None


def _keep_context(fleet: Fleet, place: Place) -> None:
    """Keep the text that a briefing would have now, in both arms."""
    try:
        known = fleet.call("recovery.context", cwd=str(place.project))
    except FleetError as error:
        raise Failed(f"fleetd knows nothing of the session: {error}") from None
    place.keep("briefing.md", known["prompt"])


def _keep_work(place: Place) -> None:
    """Keep the agent's changes and the daemon's log."""
    place.keep("project.diff", tasks.changes(place.project))
    place.keep("fleetd.log", (place.home / "fleetd.log").read_text("utf-8", "replace"))
