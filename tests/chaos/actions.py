"""One user's actions in a store inside this program, and checks that each was done once.

Must not know which faults are injected.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import trio

from fleetd.engine.engine import DAEMON, Engine
from fleetd.protocol.errors import FleetError, NotFound
from fleetd.protocol.request import Mutation
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointGet,
    CheckpointPrune,
    CheckpointVerify,
)
from fleetd.protocol.requests.mission import MissionCreate, MissionList
from fleetd.protocol.requests.snapshot import SnapshotGet, SnapshotRecord, SnapshotVerify
from fleetd.protocol.requests.system import SystemForget
from tests.chaos.campaign import Red

LARGE = "x" * 12_000
PATIENCE_S = 20.0
DEEDS = "create create checkpoint snapshot create checkpoint checkpoint prune forget"


@dataclass
class Actions:
    """The requests without an answer so far, and the answers.

    ``kinds`` are the expected errors; any other exception is a defect.
    """

    kinds: tuple[str, ...]
    open: list[Mutation[Any]] = field(default_factory=list)
    missions: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    number: int = 0

    async def work(self, engine: Engine, most: int | None = None) -> None:
        """Do some actions of every kind, or fewer; end early when the store has failed."""
        for what in DEEDS.split()[:most]:
            if engine.store.failed.is_set():
                return
            request = self._request(what)
            if request is not None:
                await self.ask(engine, request)

    async def again(self, engine: Engine) -> None:
        """Retry requests without an answer, under the same keys."""
        waiting, self.open = self.open, []
        for request in waiting:
            # A forgetting whose files could not be removed returned an error, and the next start
            # completes it: then there is nothing left to forget.
            gone = "not_found" if isinstance(request, SystemForget) else ""
            await self.ask(engine, request, done=gone)

    async def ask(self, engine: Engine, request: Mutation[Any], *, done: str = "") -> None:
        """Send a request and note the answer, or that there was none.

        ``done`` is the kind of error that means that it was done before.
        """
        try:
            with trio.fail_after(PATIENCE_S):
                result = await engine.handle(request, DAEMON)
        except FleetError as error:
            if error.kind == done:
                return self._note(request, None)
            if error.kind not in self.kinds:
                raise Red(f"{request.method} was answered {error.kind}: {error}") from error
            self.open.append(request)
            if isinstance(request, CheckpointPrune):  # unknown which checkpoints it deleted
                self.records = {k: v for k, v in self.records.items() if not k.startswith("chk-")}
        except trio.TooSlowError as hanging:
            raise Red(f"{request.method} was never answered") from hanging
        else:
            self._note(request, result)

    def _request(self, what: str) -> Mutation[Any] | None:
        self.number += 1
        key = f"key {self.number}"
        newest = next(reversed(self.missions), None)
        if what == "create":
            title = f"deed {self.number}"
            return MissionCreate(title, description=LARGE, idempotency_key=key)
        if what == "snapshot":
            return SnapshotRecord(f"run-{self.number}", idempotency_key=key)
        if newest is None:
            return None
        if what == "checkpoint":
            return CheckpointCreate(newest, idempotency_key=key)
        if what == "forget":
            return SystemForget(next(iter(self.missions)), idempotency_key=key)
        return CheckpointPrune(older_than_days=0, keep_per_mission=1, idempotency_key=key)

    def _note(self, request: Mutation[Any], result: Any) -> None:
        if isinstance(request, MissionCreate):
            self.missions[result.id] = request.title
        elif isinstance(request, CheckpointCreate):
            self.records[result.id] = result.mission_id
        elif isinstance(request, SnapshotRecord):
            self.records[result.snapshot_id] = "a run"
        elif isinstance(request, CheckpointPrune):
            for each in result.details:
                self.records.pop(each.id, None)
        elif isinstance(request, SystemForget) and request.mission_id:
            self.forgotten.add(self.missions.pop(request.mission_id))
            self.records = {k: v for k, v in self.records.items() if v != request.mission_id}

    async def check(self, engine: Engine) -> None:
        """Check that everything acknowledged is there, once, in both copies."""
        damage = await engine.store.check()
        if damage:
            raise Red(f"the database is damaged: {damage}")
        page = await engine.handle(MissionList(limit=1_000), DAEMON)
        titles = Counter(mission.title for mission in page.missions)
        for title in self.missions.values():
            if titles[title] != 1:
                raise Red(f"mission {title!r} was acknowledged and is there {titles[title]} times")
        for title in self.forgotten & set(titles):
            raise Red(f"mission {title!r} was forgotten and is back")
        if twice := [title for title, number in titles.items() if number > 1]:
            raise Red(f"done more than once: {twice}")
        for record in self.records:
            await self._check_record(engine, record)
        for verify in (CheckpointVerify(), SnapshotVerify()):
            bad = [f for f in (await engine.handle(verify, DAEMON)).findings if not f.ok]
            if bad:
                raise Red(f"the copies differ: {bad[:3]}")

    async def _check_record(self, engine: Engine, record: str) -> None:
        get = CheckpointGet(record) if record.startswith("chk-") else SnapshotGet(record)
        try:
            await engine.handle(get, DAEMON)
        except NotFound as gone:
            raise Red(f"{record} was acknowledged and is gone") from gone
