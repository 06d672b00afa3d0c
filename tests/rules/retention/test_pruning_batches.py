"""Pruning goes batch by batch, alike for both kinds of records: broken off, and two at once."""

import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import trio

from fleetd.domain.artifacts.outbox import purge, removals
from fleetd.domain.core.context import BatchSizes
from fleetd.domain.retention import pruning as rules
from fleetd.engine.files import inventory
from fleetd.protocol.errors import Storage, Unavailable
from fleetd.protocol.request import Request
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointPrune
from fleetd.protocol.requests.snapshot import SnapshotGet, SnapshotPrune, SnapshotRecord
from tests.support.fleet import DAY, MINUTE, Fleet, meet_rules

BATCH = 5


@pytest.fixture
def batches() -> BatchSizes:
    """Make batches small, so that a few records are many of them."""
    return BatchSizes(records=BATCH)


class PrunedKind(NamedTuple):
    """A kind of records; ``fill`` makes owners with some of each, of which all but one will go."""

    noun: str
    fill: Callable[[Fleet, int, int], Awaitable[list[str]]]
    prune: Request[Any]
    get: Callable[[str], Request[Any]]

    def rows(self, fleet: Fleet) -> list[str]:
        """Return every row there is, also those that are marked."""
        return [row["id"] for row in fleet.sql(f"SELECT id FROM {self.noun}s ORDER BY seq")]

    async def announced(self, fleet: Fleet) -> list[int]:
        """Return how many each event says that a pruning deleted."""
        events = await fleet.events(kind=f"{self.noun}s_pruned")
        return [event.data["deleted"] for event in events]


async def checkpoints(fleet: Fleet, owners: int, each: int) -> list[str]:
    found = []
    for mission in [await fleet.mission(1) for _ in range(owners)]:
        ids = [(await fleet.checkpoint(mission, wait_for_backup=False)).id for _ in range(each)]
        found += ids[:-1]
    await fleet.settle()
    return found


async def snapshots(fleet: Fleet, owners: int, each: int) -> list[str]:
    found = []
    for run in range(owners):
        for _ in range(each - 1):
            fleet.clock.pass_by(MINUTE)
            found.append((await fleet.do(SnapshotRecord(f"run-{run}"))).snapshot_id)
    fleet.clock.pass_by(15 * DAY)
    for run in range(owners):
        await fleet.do(SnapshotRecord(f"run-{run}"))
    await fleet.settle()
    return found


KINDS = [
    PrunedKind(
        "checkpoint",
        checkpoints,
        CheckpointPrune(older_than_days=0, keep_per_mission=1),
        CheckpointGet,
    ),
    PrunedKind("snapshot", snapshots, SnapshotPrune(), SnapshotGet),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.noun for kind in KINDS])


@pytest.mark.case("PRN-006")
@every_kind
async def test_PRN_006_others_are_answered_between_the_batches(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: PrunedKind
) -> None:
    old = await kind.fill(fleet, 4, 12)
    order: list[tuple[Any, int]] = []
    answered = 0

    async def note(rule: Any, *args: Any) -> None:
        order.append((rule, answered))
        if rule is rules.mark:
            assert len(args[-1]) <= BATCH
        if rule in (removals, purge):
            assert len(getattr(args[-1], "record_ids", args[-1])) <= BATCH

    meet_rules(fleet.engine, monkeypatch, note)

    async def client(over: trio.CancelScope) -> None:
        nonlocal answered
        with over:
            while True:
                await fleet.engine.store.write(lambda tx: tx.value("SELECT 1"))
                answered += 1

    async with trio.open_nursery() as nursery:
        over = trio.CancelScope()
        nursery.start_soon(client, over)
        pruned = await fleet.do(kind.prune)
        over.cancel()
    assert sorted(each.id for each in pruned.details) == sorted(old)
    assert pruned.deleted == len(old) == 4 * 11
    marks = [n for rule, n in order if rule is rules.mark]
    assert len(marks) >= len(old) / BATCH
    assert all(later > earlier for earlier, later in itertools.pairwise(marks))
    # Nothing is queued behind files: a batch's are gone before the next is marked.
    steps = [rule for rule, _ in order if rule in (rules.mark, purge)]
    assert steps == [rules.mark, purge] * len(marks)


@every_kind
async def test_two_at_once_share_the_work_and_count_nothing_twice(
    fleet: Fleet, kind: PrunedKind
) -> None:
    old = await kind.fill(fleet, 3, 12)
    newest = [each for each in kind.rows(fleet) if each not in old]
    results = []

    async def prune() -> None:
        results.append(await fleet.do(kind.prune))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prune)
        nursery.start_soon(prune)
    gone = [each.id for result in results for each in result.details]
    assert sorted(gone) == sorted(old)
    assert sum(result.deleted for result in results) == len(old) == 3 * 11
    assert kind.rows(fleet) == newest
    assert sum(await kind.announced(fleet)) == len(old)


@every_kind
async def test_a_disk_that_fills_up_in_the_middle_ends_it_with_a_typed_error(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: PrunedKind,
) -> None:
    caplog.set_level(logging.INFO, "fleetd")
    old = await kind.fill(fleet, 1, 10)
    marks = 0

    async def fill_up(rule: Any, *_: Any) -> None:
        nonlocal marks
        marks += rule is rules.mark
        if marks == 2 and rule in (rules.mark, rules.announce):
            raise Storage("The disk is full; nothing was stored.")

    with monkeypatch.context() as patch:
        meet_rules(fleet.engine, patch, fill_up)
        with pytest.raises(Storage, match=f"5 {kind.noun}s were pruned before") as caught:
            await fleet.do(kind.prune)
    assert caught.value.values["deleted"] == 5
    assert kind.rows(fleet)[:-1] == old[5:]
    assert f"Pruned 5 {kind.noun}s" in caplog.text
    assert "The event of the pruning could not be written: The disk is full" in caplog.text
    assert await fleet.do(kind.get(old[5]))
    assert any(old[5] in name for name in fleet.files())
    assert (await fleet.do(kind.prune)).deleted == len(old) - 5
    assert not {*old} & {*kind.rows(fleet)}


@every_kind
async def test_one_whose_client_goes_has_deleted_whole_batches_and_says_so(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: PrunedKind
) -> None:
    old = await kind.fill(fleet, 1, 10)
    scope = trio.CancelScope()

    async def leave(rule: Any, *_: Any) -> None:
        if rule is rules.mark:
            scope.cancel()

    with monkeypatch.context() as patch, scope:
        meet_rules(fleet.engine, patch, leave)
        await fleet.do(kind.prune)
    assert scope.cancelled_caught
    await fleet.settle()
    gone = len(old) + 1 - len(kind.rows(fleet))
    assert gone in (0, 5)
    assert await kind.announced(fleet) == ([gone] if gone else [])
    await fleet.do(kind.prune)
    assert not {*old} & {*kind.rows(fleet)}


@every_kind
async def test_it_stops_when_the_daemon_ends(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: PrunedKind
) -> None:
    old = await kind.fill(fleet, 1, 10)

    async def end(rule: Any, *_: Any) -> None:
        if rule is rules.mark:
            fleet.engine.stop_waiting()

    meet_rules(fleet.engine, monkeypatch, end)
    stopped = rf"shutting down\. 5 {kind.noun}s were pruned"
    with pytest.raises(Unavailable, match=stopped) as ended:
        await fleet.do(kind.prune)
    assert ended.value.values["retry"] is True
    assert kind.rows(fleet)[:-1] == old[5:]


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
async def test_owners_are_looked_up_a_batch_at_a_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    await checkpoints(fleet, 3, 2)
    reads: list[Any] = []

    async def met(rule: Any, *args: Any) -> None:
        reads.append(rule)

    monkeypatch.setattr(fleet.engine, "batches", BatchSizes(rows=rows))
    meet_rules(fleet.engine, monkeypatch, before=met)

    found = await inventory.owners(fleet.engine, "checkpoint")

    assert found == sorted({row["mission_id"] for row in fleet.sql("SELECT * FROM checkpoints")})
    assert len(reads) == 3 // rows + 1
