"""LangGraph's SqliteSaver as its documentation shows it: ``from_conn_string``, one connection."""

import importlib.metadata
import sqlite3
import threading
from contextlib import ExitStack
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from .serving import serve, synchronous, timed

THREAD = {"configurable": {"thread_id": "mission", "checkpoint_ns": ""}}


class Saver:
    """A saver on a file, and the measured operations."""

    def __init__(self) -> None:
        self._saver: Any = None
        self._kept = ExitStack()
        self._steps = 0
        self._last = THREAD

    def open(self, directory: str) -> dict[str, Any]:
        """Open it and return the settings in force."""
        self._saver = self._kept.enter_context(
            SqliteSaver.from_conn_string(f"{directory}/checkpoints.sqlite")
        )
        self._saver.setup()
        ask = self._saver.conn.execute
        return {
            "version": importlib.metadata.version("langgraph-checkpoint-sqlite"),
            "way": "in process",
            "journal_mode": ask("PRAGMA journal_mode").fetchone()[0],
            "synchronous": synchronous(ask("PRAGMA synchronous").fetchone()[0]),
            "sqlite": sqlite3.sqlite_version,
        }

    def checkpoint(self, runs: int, state: Any) -> list[float]:
        """Put checkpoints whose state is one channel."""
        return timed(lambda _: self._put(THREAD, state), runs)

    def fill(self, state: Any, missions: int, each: int) -> None:
        """Put many checkpoints without syncs: this is not measured."""
        self._saver.conn.execute("PRAGMA synchronous=OFF")
        for number in range(missions):
            for _ in range(each):
                self._put(_thread(f"mission-{number}"), state)
        self._saver.conn.execute("PRAGMA synchronous=FULL")

    def listed(self, runs: int, limit: int) -> list[float]:
        """List the newest checkpoints of all threads."""

        def look(_: int) -> None:
            if len(list(self._saver.list(None, limit=limit))) != limit:
                raise RuntimeError("there are fewer checkpoints than were put")

        return timed(look, runs)

    def latest(self, runs: int, state: Any) -> list[float]:
        """Get the newest checkpoint of the thread of ``checkpoint``."""
        if self._saver.get_tuple(THREAD).checkpoint["channel_values"] != {"state": state}:
            raise RuntimeError("this is not the state that was put last")
        return timed(lambda _: self._saver.get_tuple(THREAD), runs)

    def event(self, runs: int, data: Any) -> list[float]:
        """Put a task's write, its smallest durable step."""
        if self._last is THREAD:
            self._put(THREAD, {})
        return timed(lambda _: self._write(data), runs)

    def writers(self, runs: int, writers: int, each: int, data: Any) -> list[float]:
        """Let threads put writes at once through the saver, which has a lock for that."""

        def several() -> None:
            for _ in range(each):
                self._write(data)

        def together(_: int) -> None:
            threads = [threading.Thread(target=several) for _ in range(writers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        if self._last is THREAD:
            self._put(THREAD, {})
        return timed(together, runs)

    def _put(self, thread: Any, state: Any) -> None:
        self._steps += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"state": state}
        checkpoint["channel_versions"] = versions = {"state": self._steps}
        metadata = {"source": "loop", "step": self._steps, "parents": {}}
        self._last = self._saver.put(thread, checkpoint, metadata, versions)

    def _write(self, data: Any) -> None:
        self._steps += 1
        self._saver.put_writes(self._last, [("events", data)], f"task-{self._steps}")


def _thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}


if __name__ == "__main__":
    saver = Saver()
    serve(
        saver.open,
        {
            "checkpoint": saver.checkpoint,
            "fill": saver.fill,
            "list": saver.listed,
            "latest": saver.latest,
            "event": saver.event,
            "writers": saver.writers,
        },
    )
