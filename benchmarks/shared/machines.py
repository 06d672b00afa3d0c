"""Many machines in few processes: the engines of daemons, with their timers and without sockets.

A separate daemon for each would need a separate computer. ``python -m
benchmarks.shared.machines`` runs some of them, and lets agents send hooks at an even rate.
"""

import argparse
import gc
import itertools
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import trio

from fleetd.config import Config, Loaded, PathSettings
from fleetd.daemon import prepare_process
from fleetd.domain.core.context import Caller
from fleetd.engine.engine import Engine
from fleetd.engine.jobs.timers import run_timers
from fleetd.engine.lifecycle import open_engine
from fleetd.protocol.requests.hook import HookDeliver

from ..fleet import ROOT
from .crowd import shares
from .payloads import edit
from .spread import cpu_ms

PROCESSES = 4
# How often a waiting thread requests the interpreter, in seconds. A daemon has few threads and a
# short interval; the threads of more than a hundred machines would do nothing but request it.
SWITCH_S = 0.1


class LoadResult(msgspec.Struct, frozen=True):
    """The results of a load of hooks: how many were sent and failed, and the times of others in ms.

    A time counts from the moment when the hook was due. So a hook that waits for slow predecessors
    is slow as well.
    """

    hooks: int
    failed: int
    times_ms: list[float]


class Machines:
    """Processes that run so many machines each."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    @property
    def cpu_ms(self) -> float:
        """Return the CPU time of the processes so far, in ms."""
        return sum(cpu_ms(process.pid) for process in self._processes)

    def load(self, per_s: float, seconds: float, agents: int) -> LoadResult:
        """Let so many agents send hooks, so many a second in total, and wait until they are done.

        The agents are the same each time, spread over all machines.
        """
        number = len(self._processes)
        for process, own in zip(self._processes, shares(agents, number), strict=True):
            assert process.stdin is not None
            print(per_s / number, seconds, own, file=process.stdin, flush=True)
        results = []
        for process in self._processes:
            assert process.stdout is not None
            results.append(msgspec.json.decode(process.stdout.readline(), type=LoadResult))
        return LoadResult(
            hooks=sum(each.hooks for each in results),
            failed=sum(each.failed for each in results),
            times_ms=[took for each in results for took in each.times_ms],
        )


@contextmanager
def machines(place: Path, url: str, number: int, processes: int = PROCESSES) -> Iterator[Machines]:
    """Run so many machines on a store, and stop them at the end."""
    running: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:
        for own in shares(number, processes):
            directory = place / f"machines-{secrets.token_hex(4)}"
            command = [sys.executable, "-m", "benchmarks.shared.machines", url, str(directory)]
            process = subprocess.Popen(
                [*command, str(own)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            stack.callback(_end, process)
            running.append(process)
        # Each process ends with its input: close all inputs first, then wait for each.
        stack.callback(_close_inputs, running)
        for process in running:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the machines did not start; look at what they printed above")
        yield Machines(running)


def _close_inputs(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process to end after it was asked to; raises RuntimeError if it failed."""
    try:
        if process.wait(60):
            raise RuntimeError("machines ended; look at what they printed above")
    finally:
        process.kill()
        process.communicate()


async def _run(url: str, place: Path, number: int) -> None:
    """Run the machines until standard input ends."""
    stop = trio.Event()
    engines: list[Engine] = []
    async with trio.open_nursery() as nursery:
        for nth in range(number):
            opened = await nursery.start(_machine, _settings(url, place / str(nth)), stop)
            engines.append(opened)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            per_s, seconds, agents = line.split()
            result = await _load(engines, place, float(per_s), float(seconds), int(agents))
            print(msgspec.json.encode(result).decode(), flush=True)
        stop.set()


async def _machine(
    loaded: Loaded, stop: trio.Event, *, task_status: trio.TaskStatus[Engine]
) -> None:
    async with open_engine(loaded) as engine, trio.open_nursery() as timers:
        timers.start_soon(run_timers, engine)
        task_status.started(engine)
        await stop.wait()
        engine.stop_waiting()
        timers.cancel_scope.cancel()


def _settings(url: str, place: Path) -> Loaded:
    place.mkdir(parents=True)
    paths = PathSettings(
        database=str(place / "squawk.db"),
        checkpoints=str(place / "checkpoints"),
        socket=str(place / "socket"),
    )
    name = f"{place.parent.name}-{place.name}"
    config = msgspec.structs.replace(Config(), paths=paths, store=url, machine_name=name)
    return Loaded(config, {}, place / "config.toml", place / "spool")


async def _load(
    engines: list[Engine], place: Path, per_s: float, seconds: float, agents: int
) -> LoadResult:
    """Send hooks at an even rate, each from the next agent."""
    sessions = itertools.cycle(range(agents))
    times: list[float] = []
    failed = 0

    async def send_hook(session: int, due: float) -> None:
        nonlocal failed
        # The first characters, which name the agent, are unique among all machines' sessions.
        name = f"{place.name[-4:]}{session:04}"
        payload = json.dumps(edit(name, str(place / "project"), secrets.token_hex(8)))
        request = HookDeliver(secrets.token_hex(16), "claude", payload)
        try:
            await engines[session % len(engines)].ask(request, caller)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and shown
            failed += 1
            print(f"a hook failed: {error!r}", file=sys.stderr)
            return
        times.append((time.perf_counter() - due) * 1_000)

    caller = Caller(kind="client", uid=os.getuid(), pid=os.getpid())
    (place / "project").mkdir(exist_ok=True)
    begun = time.perf_counter()
    total = round(per_s * seconds)
    async with trio.open_nursery() as nursery:
        for number in range(total):
            due = begun + number / per_s
            await trio.sleep(max(0.0, due - time.perf_counter()))
            nursery.start_soon(send_hook, next(sessions), due)
    return LoadResult(total, failed, times)


def main() -> None:
    """Run some machines until standard input ends; each line of it asks for a load."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared.machines")
    parser.add_argument("url")
    parser.add_argument("place", type=Path)
    parser.add_argument("number", type=int)
    options = parser.parse_args()
    prepare_process(shared=True)
    sys.setswitchinterval(SWITCH_S)
    trio.run(_run, options.url, options.place, options.number)


if __name__ == "__main__":
    main()
