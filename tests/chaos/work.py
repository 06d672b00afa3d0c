"""Concurrent users of a daemon, who do everything that users do; must not judge the results.

A campaign makes a Crew, lets it work, breaks the daemon, and has a checker check what came back.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from tests.chaos.keeping import Keeping
from tests.chaos.worker import CrewWorker, Gone

# No operation takes nearly as long.
PATIENCE_S = 60.0
# The relative frequency of each errand.
OFTEN = {
    8: "start progress complete hook",
    5: "lock write snapshot checkpoint",
    3: "create_mission start_mission add_sortie assign register share release read acknowledge "
    "tell report_error",
    2: "update_mission end_mission block note_down renew advance restore ask_around",
    1: "fail_sortie remove leave requeue delete_checkpoint prune rehearse prune_snapshots "
    "delete_mission forget_mission forget_session",
}
ERRANDS = {name: often for often, names in OFTEN.items() for name in names.split()}


class User(Keeping):
    """A worker that does everything users do."""

    def errand(self) -> None:
        """Do one of the actions that are possible now."""
        while self.stale:
            self.look_again(next(iter(self.stale)))
        (name,) = self.chance.choices([*ERRANDS], [*ERRANDS.values()])
        getattr(self, name)()


class LogFollower:
    """A subscriber that records events by their ``seq`` as they happen."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._client: Fleet | None = None
        self.told: dict[int, dict[str, Any]] = {}
        self.broken: BaseException | None = None

    def run(self) -> None:
        """Read events until the daemon ends or another thread closes the connection."""
        with Fleet(self._socket, connect_s=1.0) as self._client:
            for event in self._client.events(since=max(self.told, default=0), away_s=0):
                self.told[event.seq] = {"type": event.type, "data": event.data}

    def close(self) -> None:
        """Stop reading events."""
        if self._client is not None:
            self._client.close()


class Crew:
    """Workers on separate threads, and one follower of the log.

    ``home`` is the directory of ``Run.home``; ``pause_s`` is how long each rests between two
    errands, on average.
    """

    def __init__(
        self, socket: Path, home: Path, seed: str, number: int, *, pause_s: float = 0.0
    ) -> None:
        self.workers = [
            User(f"w{n}", socket, home, random.Random(f"{seed}/{n}")) for n in range(number)
        ]
        for worker in self.workers:
            worker.others = [each.name for each in self.workers]
        self.follower = LogFollower(socket)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all workers."""
        self._stop.clear()
        jobs = [(self._work, each) for each in self.workers]
        self._threads = [threading.Thread(target=job, args=(who,)) for job, who in jobs]
        self._threads.append(threading.Thread(target=self._follow))
        for thread in self._threads:
            thread.start()

    def sent(self) -> int:
        """Return how many requests were sent so far, by all of them."""
        return sum(worker.sent for worker in self.workers)

    def answered(self) -> int:
        """Return how many requests were answered so far, by all of them."""
        return sum(worker.answered for worker in self.workers)

    def wait_for(self, more: int) -> None:
        """Wait until so many further requests were sent, or no worker is running."""
        until, deadline = self.sent() + more, time.monotonic() + PATIENCE_S
        while self.sent() < until and any(each.is_alive() for each in self._threads[:-1]):
            assert time.monotonic() < deadline, "the workers get nothing done"
            time.sleep(0.001)

    def wait_for_next(self, count: Callable[[], int]) -> None:
        """Wait until ``sent`` or ``answered`` changes."""
        before = count()
        while count() == before and any(each.is_alive() for each in self._threads[:-1]):
            pass

    def finish(self) -> None:
        """Wait until all workers have stopped: the daemon has ended, or ``finish`` stops them.

        Raises the first unexpected error of a worker.
        """
        self._stop.set()
        *working, following = self._threads
        for thread in working:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a client got no answer"
        self.follower.close()
        following.join(PATIENCE_S)
        for each in (*self.workers, self.follower):
            if each.broken is not None:
                raise AssertionError(f"{_who(each)}: {each.broken!r}") from each.broken

    def close(self) -> None:
        """Close every connection."""
        for worker in self.workers:
            worker.close()
        self.follower.close()

    def again(self) -> int:
        """Retry requests in flight; return how many there were."""
        self.close()
        retried = [worker for worker in self.workers if worker.open is not None]
        for worker in retried:
            try:
                worker.again()
            except FleetError as error:
                raise AssertionError(f"sent again: {_who(worker)}: {error!r}") from error
        return len(retried)

    def _work(self, worker: CrewWorker) -> None:
        try:
            while not self._stop.is_set():
                worker.errand()
                if self._pause_s:
                    time.sleep(self._pause_s * worker.chance.random() * 2)
        except Gone:
            return
        except Exception as error:  # noqa: BLE001 - raised again by finish
            worker.broken = error

    def _follow(self) -> None:
        try:
            self.follower.run()
        except (Unavailable, OSError):
            return
        except Exception as error:  # noqa: BLE001 - raised again by finish
            self.follower.broken = error


def _who(each: Any) -> str:
    if isinstance(each, CrewWorker):
        last = each.said[-1] if each.said else None
        asked = json.dumps(last.params)[:400] if last else ""
        return f"{each.name}, {last.method if last else 'nothing'} {asked}"
    return "the follower"
