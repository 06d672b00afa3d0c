"""A fleet for tests that are not async: trio runs in a thread, each step is one call."""

import queue
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import outcome
import trio

from tests.support import shared_store
from tests.support.fleet import Clock, Fleet, opened

T = TypeVar("T")
PATIENCE_S = 60.0


class SyncFleet:
    """An engine on real files; ``call`` runs a coroutine function on it and waits."""

    def __init__(
        self, root: Path, clock: Clock, new_id: Callable[[str], str], **changes: Any
    ) -> None:
        self.root = root
        self._clock, self._new_id, self._changes = clock, new_id, changes
        self._answers: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Open the engine, again if it was open before."""
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)
        self._thread.start()
        self._token, self._work = self._answer()

    def close(self) -> None:
        """End the engine in good order."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._token.run_sync_soon(self._work.close)
            thread.join(PATIENCE_S)
            self._answer()

    def crash(self, into: Path, work: Callable[[Fleet], Awaitable[object]]) -> None:
        """Do a last thing and go on with the files as they are at that moment."""

        async def last(fleet: Fleet) -> None:
            await work(fleet)
            without = shutil.ignore_patterns("*-shm")
            shutil.copytree(self.root, into, symlinks=True, ignore=without)
            if shared_store.SERVER:
                shared_store.fill(into, shared_store.rows(self.root))

        self.call(last)
        self.close()
        self.root = into
        self.open()

    def call(self, work: Callable[[Fleet], Awaitable[T]]) -> T:
        """Run ``work(fleet)`` and return its result, or raise what it raised."""
        self._token.run_sync_soon(self._work.send_nowait, work)
        result: T = self._answer()
        return result

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Look at the database behind the engine's back."""

        async def look(fleet: Fleet) -> list[dict[str, Any]]:
            return fleet.sql(statement)

        return self.call(look)

    def checkpoint_files(self) -> list[Path]:
        """Return every file of a checkpoint; works while the fleet is closed, too."""
        return sorted((self.root / ".flightline" / "checkpoints").glob("*/chk-*.json"))

    def _answer(self) -> Any:
        return self._answers.get(timeout=PATIENCE_S).unwrap()

    async def _serve(self) -> None:
        send, receive = trio.open_memory_channel[Any](1)
        last: outcome.Outcome[Any] = outcome.Value(None)
        try:
            async with opened(
                self.root, clock=self._clock, new_id=self._new_id, **self._changes
            ) as fleet:
                self._answers.put(outcome.Value((trio.lowlevel.current_trio_token(), send)))
                async for work in receive:
                    try:
                        self._answers.put(outcome.Value(await work(fleet)))
                    except Exception as error:  # noqa: BLE001 - raised where it was asked for
                        self._answers.put(outcome.Error(error))
        except Exception as error:  # noqa: BLE001 - raised where it was closed
            last = outcome.Error(error)
        self._answers.put(last)
