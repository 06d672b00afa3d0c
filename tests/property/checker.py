"""Looks at a whole fleet after each step and compares what is there with the model."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fleetd.protocol.records import (
    Checkpoint,
    CheckpointSummary,
    Event,
    Lock,
    Message,
    Mission,
    Sortie,
    SortieState,
)
from fleetd.protocol.requests.agent import AgentList
from fleetd.protocol.requests.checkpoint import CheckpointGet, CheckpointList
from fleetd.protocol.requests.event import EventList
from fleetd.protocol.requests.lock import LockList
from fleetd.protocol.requests.message import MessageList
from fleetd.protocol.requests.mission import MissionList
from fleetd.protocol.timestamps import to_ms
from tests.property.model import ACTIVITY, KeptCheckpoint, Model, Work
from tests.support.fleet import Fleet

MOST = 8
"""How many checkpoints a mission may have here."""


@dataclass
class FleetView:
    """What clients can see of a fleet."""

    missions: dict[str, Mission]
    sorties: dict[str, dict[str, Sortie]]
    locks: list[Lock]
    messages: dict[str, Message]
    agents: dict[str, str]
    checkpoints: dict[str, CheckpointSummary]
    events: list[Event]
    new: list[Checkpoint]

    @staticmethod
    async def of(fleet: Fleet, since: int) -> "FleetView":
        """Look at everything there is, and at the events after ``since``."""
        missions = (await fleet.do(MissionList(limit=1_000))).missions
        events = (await fleet.do(EventList(since=since, limit=1_000))).events
        checkpoints = {
            one.id: one for one in (await fleet.do(CheckpointList(limit=1_000))).checkpoints
        }
        taken = [e.data["checkpoint_id"] for e in events if e.type == "fleet_checkpointed"]
        return FleetView(
            {one.id: one for one in missions},
            {m.id: {s.id: s for s in await fleet.sorties(m)} for m in missions},
            (await fleet.do(LockList())).locks,
            {one.id: one for one in (await fleet.do(MessageList())).messages},
            {one.id: one.status for one in (await fleet.do(AgentList())).agents},
            checkpoints,
            events,
            [await fleet.do(CheckpointGet(one)) for one in taken if one in checkpoints],
        )


def work_of(sortie: SortieState) -> Work:
    begun = sortie.started_at is not None
    return Work(sortie.status, sortie.assigned_to, sortie.progress, begun)


@dataclass
class Step:
    """What one request was expected to bring about."""

    taken: list[tuple[str, str, str | None]] = field(default_factory=list)
    """The checkpoints it takes: mission, trigger, details."""
    gone: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    """The missions that must be noticed to be silent, and those that may be."""
    maybe_silent: set[str] = field(default_factory=set)
    recovery: bool = False
    rewinds: bool = False
    spare: str | None = None


class FleetChecker:
    """Follows the log as a subscriber does, and holds the fleet against the model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.position = 0
        self.token = 0
        self.read: set[tuple[str, str]] = set()
        self.finished: set[str] = set()
        self.before: dict[str, tuple[Any, ...]] = {}

    def remember(self, now: int) -> None:
        """Note how everything stands before a step."""
        for mission in self.model.missions:
            status, sorties, locks, letters = self.model.holds(mission, now)
            self.before[mission] = (status, dict(sorties), locks, letters)

    def compare(self, view: FleetView, step: Step, now: int, awake: int) -> None:
        """Compare everything; an AssertionError says what differs."""
        self.awake = awake
        self._log(view.events, step, now)
        self._work(view, step)
        self._locks(view.locks, now)
        self._mail(view.messages)
        assert view.agents == self.model.agents
        self._taken(view, step, now)
        self._left(view, step)

    def _log(self, events: list[Event], step: Step, now: int) -> None:
        for event in events:
            self.position += 1
            assert event.seq == self.position, f"event {event.seq} instead of {self.position}"
            if event.type == "message_delivered":
                delivery = (event.data["message_id"], str(event.agent_id))
                assert delivery not in self.read, f"delivered twice: {delivery}"
                self.read.add(delivery)
            by_hand = event.data.get("trigger") == "manual" and event.type == "fleet_checkpointed"
            if (event.type in ACTIVITY or by_hand) and not step.recovery:
                self.model.at_work(str(event.mission_id), self.awake)
                self.model.seen_working(str(event.agent_id), now)
                self.model.heard(str(event.agent_id), self.awake)
        noticed = [e.mission_id for e in events if e.type == "context_compacted"]
        assert len(noticed) == len(set(noticed)), f"one silence, told twice: {noticed}"
        assert step.silent <= set(noticed) <= step.maybe_silent, f"silent: {noticed}"
        self.model.silent |= {str(mission) for mission in noticed} - self.worked(events)

    def worked(self, events: list[Event]) -> set[str]:
        return {str(event.mission_id) for event in events if event.type == "agent_registered"}

    def _work(self, view: FleetView, step: Step) -> None:
        model = self.model
        seen = {one: {s.id: work_of(s) for s in own.values()} for one, own in view.sorties.items()}
        reopened = [
            sortie
            for own in seen.values()
            for sortie, work in own.items()
            if sortie in self.finished and work.status != "completed"
        ]
        assert step.rewinds or not reopened, f"finished work was taken back: {reopened}"
        self.finished = {s for own in seen.values() for s in own if own[s].status == "completed"}
        assert {one: mission.status for one, mission in view.missions.items()} == model.missions
        assert seen == model.sorties
        ends = {one: mission.completed_at for one, mission in view.missions.items()}
        model.ended = {one: to_ms(at) for one, at in ends.items() if at}
        for one, mission in view.missions.items():
            done = sum(work.status == "completed" for work in seen[one].values())
            counted = (mission.total_sorties, mission.completed_sorties, mission.progress_percent)
            assert counted == (len(seen[one]), done, model.percent(one))

    def _locks(self, locks: list[Lock], now: int) -> None:
        """Each file has one holder, the expected one, until the expected moment."""
        model = self.model
        holders = Counter(lock.normalized_path for lock in locks)
        assert not holders or max(holders.values()) == 1, f"two holders: {holders}"
        for lock in sorted(locks, key=lambda lock: lock.fencing_token):
            path, lease = lock.normalized_path, model.leases.get(lock.normalized_path)
            assert lease, f"{lock.held_by} holds {path}, which should be free"
            if not lease.id and lease.was and lease.was.token == lock.fencing_token:
                lease = model.leases[path] = lease.was
            elif not lease.id:
                assert lock.fencing_token > self.token, f"an old token for {path}"
                lease.id, lease.token = lock.id, lock.fencing_token
            seen = (lock.id, lock.held_by, lock.fencing_token, to_ms(lock.expires_at or ""))
            assert seen == (lease.id, lease.agent, lease.token, lease.until), path
            self.token = max(self.token, lock.fencing_token)
            model.grants[lock.id] = path
        expected = {path for path, lease in model.leases.items() if lease.until > now}
        assert holders.keys() == expected

    def _mail(self, messages: dict[str, Message]) -> None:
        seen = {
            one: {to.agent_id: to.status for to in letter.deliveries}
            for one, letter in messages.items()
        }
        assert seen == self.model.letters

    def _taken(self, view: FleetView, step: Step, now: int) -> None:
        """A checkpoint holds what was there, and none is taken without a reason."""
        model, expected = self.model, list(step.taken)
        for one in view.new:
            holds = model.holds(one.mission_id, now)
            if one.trigger_details == "Mission fell silent":
                assert one.mission_id in step.maybe_silent
            elif step.recovery and one.trigger == "compaction":
                holds = self.before[one.mission_id] if one.undo else holds
            else:
                reason = (one.mission_id, one.trigger, one.trigger_details)
                assert reason in expected, f"nobody expected {reason}, only {expected}"
                expected.remove(reason)
            kept = self._kept(one)
            held = (kept.status, kept.sorties, kept.locks, kept.letters)
            assert held == holds, f"{one.id} holds something else than there was"
            model.checkpoints[one.id] = kept
        assert not expected, f"checkpoints are missing: {expected}"

    def _kept(self, one: Checkpoint) -> KeptCheckpoint:
        assert one.mission
        return KeptCheckpoint(
            one.id,
            one.mission_id,
            to_ms(one.timestamp),
            one.trigger,
            one.trigger_details,
            one.undo,
            one.mission.status,
            {sortie.id: work_of(sortie) for sortie in one.sorties},
            sorted((k.normalized_path, k.held_by, k.timeout_ms) for k in one.active_locks),
            {letter.id: sorted(letter.to) for letter in one.pending_messages},
            len(self.model.recoveries) - one.undo,
        )

    def _left(self, view: FleetView, step: Step) -> None:
        """Checkpoints go when they are asked to, or make room; those that are gone stay away."""
        model = self.model
        back = model.deleted & view.checkpoints.keys()
        assert not back, f"deleted checkpoints came back: {back}"
        gone = model.checkpoints.keys() - view.checkpoints.keys()
        for mission in model.missions:
            had = model.of(mission)
            newest = {one.id for one in had[:3]} | {step.spare}
            newest |= {next((one.id for one in had if one.trigger == "progress"), None)}
            oldest = [one for one in had[::-1] if one.id not in newest]
            oldest.sort(key=lambda one: one.trigger != "error")
            step.gone |= {one.id for one in oldest[: max(0, len(had) - MOST)]}
        assert gone == step.gone, f"{gone} went, {step.gone} had to go"
        for one in gone:
            model.forget(one)
        assert view.checkpoints.keys() == model.checkpoints.keys()
        used = {name for name, one in view.checkpoints.items() if one.consumed_at}
        assert used == {name for name, kept in model.checkpoints.items() if kept.used}
