"""DBOS on its SQLite system database: workflows in this process, with durable steps."""

import importlib.metadata
import sqlite3
import threading
from typing import Any

from dbos import DBOS
from sqlalchemy import event
from sqlalchemy.engine import Engine

from .serving import serve, synchronous, timed

RECEIVE_S = 10
LATEST = "latest"
connections: list[Any] = []
# A workflow's arguments are stored, so they contain the number of a barrier.
barriers: list[threading.Barrier] = []
published: list[str] = []


@event.listens_for(Engine, "connect")  # type: ignore[untyped-decorator,unused-ignore]
def _remember(connection: Any, _record: Any) -> None:
    """Keep one of DBOS's own connections, to query its settings later."""
    connections[:] = [connection]


def begin(directory: str) -> dict[str, Any]:
    """Launch it on a file and return the settings in force."""
    url = f"sqlite:///{directory}/dbos.sqlite"
    settings = {"log_level": "ERROR", "run_admin_server": False}
    DBOS(config={"name": "bench", "system_database_url": url, **settings})
    DBOS.launch()
    ask = connections[0].execute
    return {
        "version": importlib.metadata.version("dbos"),
        "way": "in process",
        "journal_mode": ask("PRAGMA journal_mode").fetchone()[0],
        "synchronous": synchronous(ask("PRAGMA synchronous").fetchone()[0]),
        "sqlite": sqlite3.sqlite_version,
    }


def _step(data: Any) -> Any:
    return data


def _events(runs: int, data: Any) -> list[float]:
    """Run steps, whose results are recorded before they return."""
    return timed(lambda _: DBOS.run_step({"name": "event"}, _step, data), runs)


def _checkpoints(runs: int, state: Any) -> list[float]:
    """Set a workflow's events to states, each under a separate name."""
    return timed(lambda number: DBOS.set_event(f"checkpoint-{number}", state), runs)


def _publish(state: Any) -> str:
    DBOS.set_event(LATEST, state)
    return str(DBOS.workflow_id)


def _mail(runs: int, letter: Any) -> list[float]:
    """Send messages to this workflow and receive them; DBOS records each receipt."""

    def pass_on(_: int) -> None:
        DBOS.send(DBOS.workflow_id, letter, "inbox")
        if DBOS.recv("inbox", timeout_seconds=RECEIVE_S) != letter:
            raise RuntimeError("this is not the letter that was sent")

    return timed(pass_on, runs)


def _writer(runs: int, each: int, data: Any, number: int) -> None:
    barrier = barriers[number]
    for _ in range(runs):
        barrier.wait()
        for _ in range(each):
            DBOS.run_step({"name": "event"}, _step, data)
        barrier.wait()


def together(runs: int, writers: int, each: int, data: Any) -> list[float]:
    """Let workflows on threads run steps at once; their start and end are not timed."""
    barriers.append(barrier := threading.Barrier(writers + 1))
    asked = (runs, each, data, len(barriers) - 1)
    threads = [threading.Thread(target=writer, args=asked) for _ in range(writers)]
    for thread in threads:
        thread.start()

    def one_round(_: int) -> None:
        barrier.wait()
        barrier.wait()

    times = timed(one_round, runs)
    for thread in threads:
        thread.join()
    return times


def fill(state: Any) -> None:
    """Publish the state that ``latest`` gets."""
    published.append(publish(state))


def latest(runs: int, state: Any) -> list[float]:
    """Get the event that a workflow set last."""
    if DBOS.get_event(published[-1], LATEST) != state:
        raise RuntimeError("this is not the state that was set last")
    return timed(lambda _: DBOS.get_event(published[-1], LATEST), runs)


events = DBOS.workflow(name="events")(_events)
checkpoints = DBOS.workflow(name="checkpoints")(_checkpoints)
publish = DBOS.workflow(name="publish")(_publish)
mail = DBOS.workflow(name="mail")(_mail)
writer = DBOS.workflow(name="writer")(_writer)

if __name__ == "__main__":
    serve(
        begin,
        {
            "event": events,
            "checkpoint": checkpoints,
            "fill": fill,
            "latest": latest,
            "mail": mail,
            "writers": together,
        },
    )
