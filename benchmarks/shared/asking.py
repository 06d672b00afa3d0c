"""The most frequent requests of agents, on any store: one client, one call after the other."""

import itertools
import json
import secrets
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ..fleet import Fleet
from ..measure import Samples, timed
from .payloads import edit

Question = Callable[[], object]
DATA = {"path": "src/parser.py", "bytes": 4_096}


class Asked(msgspec.Struct, frozen=True):
    """The times of a call, in ms, on each store, and those of the fsyncs in turn with it."""

    name: str
    runs: int
    samples: dict[str, Samples]

    def ratio(self, store: str, beside: str) -> float:
        """Return the ratio of the median of one store to that of another."""
        return self.samples[store].p50 / self.samples[beside].p50


def questions(fleet: Fleet) -> dict[str, Question]:
    """Return the requests by name."""
    own = fleet.mission(4)
    sortie = fleet.call("sortie.list", mission_id=own)["sorties"][0]["id"]
    fleet.call("sortie.start", sortie_id=sortie, agent_id="dispatch")
    percent = itertools.cycle(range(1, 20))
    file = str(fleet.directory / "locked.py")

    def progress() -> None:
        fleet.call("sortie.progress", sortie_id=sortie, percent=next(percent), notes="Working")

    def lock() -> None:
        held = fleet.call("lock.acquire", file=file, agent_id="dispatch", mission_id=own)
        fleet.call("lock.release", lock_id=held["id"], agent_id="dispatch")

    def letter() -> None:
        message = {"from": "dispatch", "to": ["specialist-1"], "subject": "Ready?"}
        sent = fleet.call("message.send", **message)
        fleet.call("message.inbox", agent_id="specialist-1")
        fleet.call("message.ack", message_id=sent["id"], agent_id="specialist-1")

    append = partial(fleet.call, "event.append", type="file_read", mission_id=own, data=DATA)
    return {
        "system.hello": partial(fleet.call, "system.hello"),
        "event.append": append,
        "sortie.progress": progress,
        "lock.acquire, lock.release": lock,
        "message.send, inbox, ack": letter,
        "checkpoint.create, 4 sorties": partial(fleet.checkpoint, own, wait=False),
        "hook.deliver": hook(fleet),
        "mission.get": partial(fleet.call, "mission.get", mission_id=own),
        "event.list, 50": partial(fleet.call, "event.list", since=0, limit=50),
        "system.status": partial(fleet.call, "system.status"),
    }


def hook(fleet: Fleet) -> Question:
    """Return a hook after an edit; all its calls differ."""
    number = itertools.count(1)
    session = secrets.token_hex(4)

    def call() -> None:
        fleet.call(
            "hook.deliver",
            delivery_id=secrets.token_hex(16),
            harness="claude",
            payload=json.dumps(edit(session, str(fleet.directory), f"tool_{next(number)}")),
        )

    return call


def in_turn(
    fleets: dict[str, Fleet], fsync: Question, runs: int, only: Sequence[str] = ()
) -> list[Asked]:
    """Send each store the same requests in turn, and sync a block of 4 KB each time.

    The first ten of each do not count: statements are not prepared, and caches are cold.
    """
    asked = {name: questions(fleet) for name, fleet in fleets.items()}
    found = []
    names = only or [*next(iter(asked.values()))]
    for name in names:
        samples = {store: Samples([]) for store in (*fleets, "fsync")}
        ways = {store: mine[name] for store, mine in asked.items()} | {"fsync": fsync}
        for number in range(runs + 10):
            for store, way in ways.items():
                took = timed(way)
                if number >= 10:
                    samples[store].times_ms.append(took)
        for fleet in fleets.values():
            fleet.settle()
        found.append(Asked(name, runs, samples))
    return found
