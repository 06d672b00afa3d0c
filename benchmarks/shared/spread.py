"""Hooks of many agents of many distant daemons: the throughput, and the CPU time of each part.

All parts share the processors of one computer, so the figures include who used them.
"""

import contextlib
import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
import psycopg

from tests.support.network import Network
from tests.support.postgres_server import SUPERUSER, LocalPostgres
from tests.support.process_family import family

from ..fleet import Fleet
from ..measure import Samples, timed
from .asking import hook
from .crowd import HOOK, Crowd, crowd, hooks_taken
from .payloads import HOOKS, Payload, edit

ALONE = 40
_SELECTS = 10_000
_TICK_MS = 1_000 / os.sysconf("SC_CLK_TCK")


class Spread(msgspec.Struct, frozen=True):
    """The results of the agents with a network delay to the server, each way.

    ``alone`` are the times of one hook at a time, in ms. ``cpu`` is the CPU time of each hook in
    ms: of the server, the daemons, the clients, and the network between them, which is a program
    here. Only for the clients it includes the starts of sessions.
    """

    delay_ms: float
    crowd: Crowd
    alone: Samples
    cpu: dict[str, float]


class HookCost(msgspec.Struct, frozen=True):
    """What hooks about something cost, ``cpu`` as in Spread but without the clients."""

    about: str
    crowd: Crowd
    cpu: dict[str, float]


def spread(
    fleets: Sequence[Fleet],
    server: LocalPostgres,
    network: Network,
    delay_ms: float,
    *,
    clients: int,
    seconds: float,
    runs: int,
) -> Spread:
    """Send one hook at a time, then let all clients send hooks at once."""
    ask = hook(fleets[0])
    for _ in range(5):
        ask()
    alone = Samples([timed(ask) for _ in range(runs)])
    time.sleep(0.2)
    begun, hooks = _clients_used(), hooks_taken(fleets[0])
    warm_s = seconds + clients * (0.1 + 0.02 * delay_ms)
    parts = _parts(fleets, server) | {"network": partial(cpu_ms, network.pid)}
    found, cpu = _crowd(parts, fleets, server, (edit,), clients, seconds, warm_s)
    cpu["clients"] = (_clients_used() - begun) / (hooks_taken(fleets[0]) - hooks)
    return Spread(delay_ms, found, alone, cpu)


def hook_costs(
    fleets: Sequence[Fleet], server: LocalPostgres, *, clients: int, seconds: float
) -> list[HookCost]:
    """Let all clients send the same hooks, kind by kind; their sessions begin in the warm-up.

    All kinds are sent once before, so that the first one is not the only one with cold daemons.
    """
    parts, warm_s = _parts(fleets, server), seconds + 0.05 * clients
    every = [*chain.from_iterable(HOOKS.values())]
    crowd(HOOK, fleets, clients, seconds, server=server, hooks=every)
    return [
        HookCost(about, *_crowd(parts, fleets, server, hooks, clients, seconds, warm_s))
        for about, hooks in HOOKS.items()
    ]


Part = Callable[[], float]
"""Returns the CPU time of a part so far, in ms."""


def _parts(fleets: Sequence[Fleet], server: LocalPostgres) -> dict[str, Part]:
    return {
        "server": partial(cpu_of_server, server),
        "daemons": lambda: sum(cpu_ms(fleet.pid) for fleet in fleets),
    }


def _crowd(
    parts: Mapping[str, Part],
    fleets: Sequence[Fleet],
    server: LocalPostgres,
    hooks: Sequence[Payload],
    clients: int,
    seconds: float,
    warm_s: float,
) -> tuple[Crowd, dict[str, float]]:
    """Return what the clients had, and the CPU time of each part for each hook, in ms."""
    warm: list[tuple[dict[str, float], float]] = []

    def used() -> tuple[dict[str, float], float]:
        begun = hooks_taken(fleets[0])
        cpu = {name: part() for name, part in parts.items()}
        return cpu, (begun + hooks_taken(fleets[0])) / 2

    found = crowd(
        HOOK,
        fleets,
        clients,
        seconds,
        server=server,
        warm_s=warm_s,
        hooks=hooks,
        on_warm=lambda: warm.append(used()),
    )
    [(before, begins)] = warm
    after, asked = used()
    return found, {name: (after[name] - before[name]) / (asked - begins) for name in after}


def cpu_of_server(server: LocalPostgres) -> float:
    """Return the CPU time of a server and its connections, in ms."""
    assert server.process is not None
    used = cpu_ms(server.process.pid, ended=True)
    for pid in family(server.process.pid)[1:]:
        # A process that ends in between is counted among the ended ones next time.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used += cpu_ms(pid)
    return used


def select_ms(server: LocalPostgres) -> float:
    """Return the server's CPU time for the smallest possible query, in ms."""
    with psycopg.connect(server.url(user=SUPERUSER), autocommit=True) as connection:
        backend = connection.info.backend_pid
        before = cpu_ms(backend)
        for _ in range(_SELECTS):
            connection.execute("SELECT 1")
        return (cpu_ms(backend) - before) / _SELECTS


def _clients_used() -> float:
    """Return the CPU time of clients that have ended, in ms."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (children.ru_utime + children.ru_stime) * 1_000


def cpu_ms(pid: int, *, ended: bool = False) -> float:
    """Return the CPU time of a process, in ms, with its ended children if requested."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) * _TICK_MS
