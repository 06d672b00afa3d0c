"""The paths that clients take, over a real socket to a real daemon, each timed from outside."""

import itertools
import json
import os
import secrets
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Any

from . import compared
from .bench import Bench
from .fleet import AGENTS, ROOT, Fleet
from .measure import Operation
from .rows import NOTHING, Promise, Row

LETTER = {"subject": "Ready?", "body": "The parser is merged."}
# A mission keeps its newest 100 checkpoints.
FULL, FEW, RUNS = 100, 5, 200


def checkpoints(bench: Bench) -> Iterator[Row]:
    """Measure creating checkpoints of missions of three sizes."""
    fleet = bench.fleet
    for sorties, ratio, runs, beside in (
        (4, 3, 100, Promise(ratio=2)),
        (100, 4, 100, NOTHING),
        (1_000, 20, 30, NOTHING),
    ):
        mission = fleet.mission(min(sorties, 50) if bench.quick else sorties)
        name = f"checkpoint.create, {sorties:,} sorties, file later"
        take = _taking(fleet, mission, wait=False)
        yield bench.beside_fsync(
            name, take, runs=runs, promise=Promise(ratio=ratio), settle=fleet.settle
        )
        state = fleet.call("checkpoint.latest", mission_id=mission)
        yield from compared.checkpoint(
            bench, name, take, state, runs=runs // 2, settle=fleet.settle, promise=beside
        )
    yield bench.beside_fsync(
        "PERF-301: checkpoint.create with its file, 4 sorties",
        _taking(fleet, fleet.mission(4), wait=True),
        runs=100,
        promise=Promise(spec_p95_ms=100),
    )


def full_mission(bench: Bench) -> Iterator[Row]:
    """Measure checkpoints of a mission with the maximum number, beside missions with a few."""
    fleet = bench.fleet
    full = fleet.mission(4)
    for _ in range(FULL):
        fleet.checkpoint(full, wait=False)
    fleet.settle()
    others = [fleet.mission(4) for _ in range(RUNS // FEW)]
    each = itertools.cycle(mission for mission in others for _ in range(FEW))
    yield bench.beside(
        f"checkpoint.create, 4 sorties, {FULL} checkpoints before",
        _taking(fleet, full, wait=False),
        lambda: fleet.checkpoint(next(each), wait=False),
        runs=RUNS,
        reference=f"fewer than {FEW} before",
        promise=Promise(ratio=1.05),
        settle=fleet.settle,
        settle_other=fleet.settle,
    )


def _taking(fleet: Fleet, mission_id: str, *, wait: bool) -> Operation:
    return lambda: fleet.checkpoint(mission_id, wait=wait)


def snapshots(bench: Bench) -> Iterator[Row]:
    """Measure recording a run's state, which waits for the history file and latest.json."""
    fleet = bench.fleet
    steps = itertools.count(1)

    def record() -> None:
        step = {"step_ordinal": next(steps), "step_status": "in_progress"}  # else it would join
        fleet.call("snapshot.record", run_id="bench", source="step_boundary", step_state=step)

    yield bench.beside_fsync("snapshot.record, with its files", record, runs=100)


def recovery(bench: Bench) -> Iterator[Row]:
    """Measure recoveries that change each of 100 sorties and keep an undo checkpoint."""
    fleet = bench.fleet
    pairs = [_two_states(fleet) for _ in range(1 if bench.quick else 4)]
    restore = _restoring(fleet, pairs)
    yield bench.beside_fsync(
        "PERF-302: recovery.restore, 100 sorties, all changed",
        lambda: next(restore),
        runs=100,
        promise=Promise(ratio=14, spec_p95_ms=500),
        settle=fleet.settle,
    )
    mission = fleet.mission(100)
    fleet.checkpoint(mission, wait=True)
    yield bench.beside_fsync(
        "recovery.restore, 100 sorties, none changed",
        lambda: fleet.call("recovery.restore", mission_id=mission),
        runs=100,
        promise=Promise(ratio=6, spec_p95_ms=500),
        settle=fleet.settle,
    )


def recovery_with_git(bench: Bench) -> Iterator[Row]:
    """Measure a recovery whose briefing has Git's data about the project, where Git is."""
    if shutil.which("git") is None:
        return
    fleet = bench.fleet
    project = fleet.directory / "project"
    project.mkdir()
    subprocess.run(["git", "init", "--quiet", str(project)], check=True, env=fleet.env)
    mission = fleet.mission(100, project)
    fleet.checkpoint(mission, wait=True)
    yield bench.beside_fsync(
        "recovery.restore in a Git repository",
        lambda: fleet.call("recovery.restore", mission_id=mission),
        runs=30,
        promise=Promise(spec_p95_ms=500),
        settle=fleet.settle,
    )


def _restoring(fleet: Fleet, pairs: list[tuple[str, str]]) -> Iterator[object]:
    """Alternate between two checkpoints of each mission; each step is one recovery.

    Every step creates an undo checkpoint, and a mission keeps 100 checkpoints. So the steps are
    spread evenly over the missions.
    """
    for early, late in itertools.cycle(pairs):
        for checkpoint_id in (early, late):
            yield fleet.call("recovery.restore", checkpoint_id=checkpoint_id, rewind=True)


def _two_states(fleet: Fleet) -> tuple[str, str]:
    """Create a checkpoint before and one after the start of every sortie of a mission."""
    mission = fleet.mission(100)
    for number, agent in enumerate(AGENTS):
        file = str(fleet.directory / f"{mission}-{number}.py")
        fleet.call("lock.acquire", file=file, agent_id=agent, mission_id=mission)
    early = fleet.checkpoint(mission, wait=True)
    for sortie in fleet.call("sortie.list", mission_id=mission)["sorties"]:
        fleet.call("sortie.start", sortie_id=sortie["id"], agent_id=sortie["assigned_to"])
    return early, fleet.checkpoint(mission, wait=True)


# The words and the path by which a search finds an event.
SEARCHABLE_DATA = {
    "command": "pytest -q tests/test_login_form.py --maxfail 1 and look at what it prints"
}


PATTERNS = 1_000


def event(bench: Bench) -> Iterator[Row]:
    """Measure one durable event after the other, from one client."""
    fleet = bench.fleet
    mission = fleet.mission(4)
    name = "event.append, one client"

    def append() -> object:
        return fleet.call("event.append", type="file_read", mission_id=mission, data=compared.DATA)

    yield bench.beside_fsync(name, append, runs=500, promise=Promise(ratio=1.6))
    yield from compared.event(bench, name, append)

    def append_text() -> object:
        return fleet.call("event.append", type="tried", mission_id=mission, data=SEARCHABLE_DATA)

    yield bench.beside_fsync("event.append with text to search, one client", append_text, runs=500)


def locks(bench: Bench) -> Iterator[Row]:
    """Measure taking and releasing a lock, with a commit each."""
    fleet = bench.fleet
    mission = fleet.mission(4)
    file = str(fleet.directory / "locked.py")
    name = "lock.acquire, then lock.release"

    def take_and_release() -> None:
        _lock(fleet, mission, file)

    yield bench.beside_fsync(name, take_and_release, runs=200, promise=Promise(ratio=4.2))
    yield from compared.lock(bench, name, take_and_release, file)
    yield from _checks(bench, file)


def _checks(bench: Bench, file: str) -> Iterator[Row]:
    """Measure the check before a write, without other locks and beside 1,000 patterns."""
    fleet = bench.fleet
    place = str(fleet.directory)

    def check() -> object:
        return fleet.call("lock.check", file=file)

    yield bench.beside_fsync("lock.check", check, runs=300)
    patterns = [f"**/mod{number}_*.py" for number in range(100 if bench.quick else PATTERNS)]
    held = [
        fleet.call("lock.acquire", pattern=pattern, cwd=place, agent_id=AGENTS[1])
        for pattern in patterns
    ]
    name = f"lock.check, beside {len(patterns):,} patterns"
    yield bench.beside_fsync(name, check, runs=300, promise=Promise(p50_ms=1))
    for lock in held:
        fleet.call("lock.release", lock_id=lock["id"], agent_id=AGENTS[1])


def mail(bench: Bench) -> Iterator[Row]:
    """Measure the steps of a message: sent, read, acknowledged."""
    fleet = bench.fleet
    mission = fleet.mission(4)
    name = "message.send, message.inbox, message.ack"

    def pass_letter() -> None:
        _letter(fleet, mission)

    yield bench.beside_fsync(name, pass_letter, runs=200)
    yield from compared.mail(bench, name, pass_letter, LETTER)


def round_trip(bench: Bench) -> Iterator[Row]:
    """Measure the overhead of every request."""
    fleet = bench.fleet
    name = "system.hello: a round trip without the store"
    yield bench.beside_fsync(name, lambda: fleet.call("system.hello"), runs=300)
    yield from compared.round_trip(bench, name, "system.hello")


def _lock(fleet: Fleet, mission_id: str, file: str) -> None:
    lock = fleet.call("lock.acquire", file=file, agent_id=AGENTS[1], mission_id=mission_id)
    fleet.call("lock.release", lock_id=lock["id"], agent_id=AGENTS[1])


def _letter(fleet: Fleet, mission_id: str) -> None:
    fleet.call(
        "message.send", **{"from": AGENTS[0]}, to=[AGENTS[2]], mission_id=mission_id, **LETTER
    )
    for message in fleet.call("message.inbox", agent_id=AGENTS[2])["messages"]:
        fleet.call("message.ack", message_id=message["id"], agent_id=AGENTS[2])


def command_line(bench: Bench) -> Iterator[Row]:
    """Measure a whole ``fleetctl status``, from exec to exit."""
    fleet = bench.fleet
    # The command of the installed script, where an installed one would find its modules.
    entry = "import sys; from fleetctl.__main__ import main; sys.exit(main())"
    command = [bench.python, "-c", entry, "status"]
    env = fleet.env | {"PYTHONPATH": os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])}

    def status() -> object:
        return subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)

    promise = Promise(ratio=2.2, spec_p95_ms=200)
    yield bench.beside_python("fleetctl status, whole process", status, runs=40, promise=promise)
    _six_sessions(fleet)
    name = "fleetctl status of six sessions, whole process"
    yield bench.beside_python(name, status, runs=40, promise=Promise(p50_ms=100))


def _six_sessions(fleet: Fleet) -> None:
    """Begin two sessions in each of three repositories; the last one asks for a permission."""
    for number in range(6):
        directory = fleet.directory / f"repository-{number // 2}"
        (directory / ".git").mkdir(parents=True, exist_ok=True)
        session = {"session_id": f"session-{number}", "cwd": str(directory)}
        payload = {"hook_event_name": "UserPromptSubmit", "prompt": "Port the tree", **session}
        _hook(fleet, payload)
    asks = {"hook_event_name": "PermissionRequest", "tool_name": "Bash"}
    _hook(fleet, {**asks, "tool_input": {"command": "make"}, **session})


def _hook(fleet: Fleet, payload: dict[str, Any]) -> None:
    fleet.call(
        "hook.deliver",
        delivery_id=secrets.token_hex(16),
        harness="claude",
        payload=json.dumps(payload),
    )
