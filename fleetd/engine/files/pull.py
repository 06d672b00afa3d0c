"""Pull: writes the files of a mission's checkpoints here, whichever machine keeps them.

They have a separate tree, which is never compared with rows or ingested: pruned or forgotten
records never come back from it. Only one record at a time is in memory.
"""

import contextlib

import msgspec
import trio

from ...domain.artifacts.inventory import NEWEST, PullCursor, batch, content
from ...domain.core.context import Caller
from ...domain.core.registry import method
from ...domain.missions import missions
from ...host import progress
from ...protocol.errors import Corrupt, FleetError, Incompatible, Storage, Unavailable
from ...protocol.requests.checkpoint import CheckpointPull, PulledCheckpoints
from ...protocol.requests.mission import MissionGet
from ...store.files.record_files import RecordFiles
from ..engine import Engine


@method(CheckpointPull)
async def pull(engine: Engine, request: CheckpointPull, caller: Caller) -> PulledCheckpoints:
    """Write the files of a mission's checkpoints, and remove those of checkpoints that are gone.

    Files that are already there and identical stay untouched. Raises Storage for a file that cannot
    be written; files written before it stay, and the next pull continues.
    """

    async def work() -> PulledCheckpoints:
        mission_id = (await engine.run(missions.get, MissionGet(request.mission_id))).id
        pulling = _Pulling(engine, mission_id)
        try:
            await pulling.run()
        except OSError as error:
            place = error.filename or engine.pulled.root / mission_id
            raise Storage(
                f"The files of {mission_id} could not be pulled: {place} ({error.strerror}).",
                hint="Remove the cause, then pull again: the work continues where it stopped.",
                path=str(place),
            ) from error
        return pulling.result

    return await engine.run_once(request, work)


class _Pulling:
    """One pull, and its result so far."""

    def __init__(self, engine: Engine, mission_id: str) -> None:
        self._engine = engine
        self._files = engine.pulled
        self._seen: set[str] = set()
        self._linked: str | None = None
        self._latest: str | None = None
        self.result = PulledCheckpoints(
            mission_id=mission_id, directory=str(engine.pulled.root / mission_id)
        )

    async def run(self) -> None:
        """Pull every checkpoint, newest first, then remove the files of those that are gone."""
        engine, mission_id = self._engine, self.result.mission_id
        async with engine.outbox.file_lock:
            await engine.outbox.in_thread(self._files.sweep)
            listing = await engine.outbox.in_thread(lambda: self._files.list(mission_id))
        linked = (listing.latest or "").removesuffix(".json")
        self._linked = linked if linked in listing.files else None
        progress.at("checkpoints")
        cursor: PullCursor | None = NEWEST
        while cursor is not None:
            page = await engine.read(batch, mission_id, cursor)
            await self._write_batch(page.found)
            cursor = page.following
        # This corrects latest.json even if there is nothing to remove.
        gone = sorted(listing.files - self._seen)
        async with engine.outbox.file_lock:
            stuck = await engine.outbox.in_thread(
                lambda: self._files.remove(mission_id, gone, self._latest)
            )
        for error in stuck.values():
            raise error
        self._note(removed=len(gone))
        if not self._seen:  # it may have been forgotten meanwhile
            await engine.run(missions.get, MissionGet(mission_id))

    async def _write_batch(self, found: dict[str, bool]) -> None:
        for checkpoint_id, nameable in found.items():
            if self._engine.closing:
                raise Unavailable(
                    "fleetd is shutting down.", hint="Pull again after it has started.", retry=True
                )
            self._seen.add(checkpoint_id)
            try:
                written = await self._write(checkpoint_id)
            except (Corrupt, Incompatible) as error:
                self._note(warnings=[*self.result.warnings, error.message])
                continue
            if written and self._latest is None and nameable:
                self._latest = checkpoint_id
            progress.advance()

    async def _write(self, checkpoint_id: str) -> bool:
        """Write one file, unless it is there; returns whether there is one now.

        Nothing else touches a file meanwhile, so no forgotten checkpoint is written afterwards.
        """
        engine, mission_id, files = self._engine, self.result.mission_id, self._files
        async with engine.outbox.file_lock:
            data = await engine.read(content, checkpoint_id)
            if data is None:
                self._seen.discard(checkpoint_id)
                return False
            held = await engine.outbox.in_thread(lambda: _held(files, mission_id, checkpoint_id))
            if held == data:
                self._note(unchanged=self.result.unchanged + 1)
                return True
            with trio.CancelScope(shield=True):
                # latest.json stays as it was, until the newest file is written.
                await engine.outbox.in_thread(
                    lambda: files.write(
                        mission_id, checkpoint_id, data, self._latest or self._linked
                    )
                )
        self._note(written=self.result.written + 1, bytes=self.result.bytes + len(data))
        return True

    def _note(self, **figures: object) -> None:
        self.result = msgspec.structs.replace(self.result, **figures)


def _held(files: RecordFiles, mission_id: str, checkpoint_id: str) -> bytes | None:
    """Return the content of a file, None if it is not there or cannot be read."""
    with contextlib.suppress(FleetError, OSError):
        return files.read(mission_id, checkpoint_id)
    return None
