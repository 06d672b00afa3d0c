"""What a fleet promises, as dicts: what each request should do and what must hold after it.

Written from the documents; knows no SQL and no file, and imports no rule of the product.
"""

from dataclasses import dataclass, field, replace
from typing import Any

DAY = 86_400_000
LIMIT = 300_000
"""After how long, in ms, a mission is silent and an agent lost."""
OPEN = ("pending", "in_progress")
CLOSED = ("completed", "failed")
# What agents and people do; it prolongs the leases of the agent that did it.
ACTIVITY = {
    *("mission_created", "mission_started", "mission_completed", "mission_failed"),
    *("mission_cancelled", "sortie_created", "sortie_assigned", "sortie_started"),
    *("sortie_progressed", "sortie_blocked", "sortie_unblocked", "sortie_completed"),
    *("sortie_failed", "sortie_removed", "agent_registered", "agent_deregistered"),
    *("lock_acquired", "lock_renewed", "lock_released", "lock_force_released"),
    *("message_sent", "message_acked", "error_reported"),
}


@dataclass(frozen=True)
class Work:
    """A sortie: where it stands and whose it is."""

    status: str = "pending"
    agent: str | None = None
    progress: int = 0
    begun: bool = False


@dataclass
class Lease:
    """A lock that nobody has closed; past ``until`` it guards nothing."""

    id: str
    agent: str
    token: int
    until: int
    length: int
    mission: str | None
    was: "Lease | None" = None
    """What a recovery may also have left as it was; then the id is still empty."""


@dataclass
class KeptCheckpoint:
    """A checkpoint: what it says of itself and what it holds."""

    id: str
    mission: str
    stamp: int
    trigger: str
    details: str | None
    undo: bool
    status: str
    sorties: dict[str, Work]
    locks: list[tuple[str, str, int]]
    letters: dict[str, list[str]]
    recoveries: int
    """How many recoveries there had been when it was taken."""
    used: bool = False


@dataclass
class Model:
    """The whole fleet."""

    missions: dict[str, str] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    sorties: dict[str, dict[str, Work]] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    agents: dict[str, str] = field(default_factory=dict)
    joined: dict[str, str | None] = field(default_factory=dict)
    heirs: dict[str, str] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    grants: dict[str, str] = field(default_factory=dict)
    letters: dict[str, dict[str, str]] = field(default_factory=dict)
    posted_in: dict[str, str | None] = field(default_factory=dict)
    checkpoints: dict[str, KeptCheckpoint] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    quiet: dict[str, str] = field(default_factory=dict)
    """The checkpoint a mission was last recovered from, if nothing was done in it since."""
    recoveries: list[KeptCheckpoint] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    active: dict[str, int | None] = field(default_factory=dict)
    """When a mission was last at work, on the awake clock; None when a reboot came between."""
    silent: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)

    # Sorties and missions

    def mission_of(self, sortie: str) -> str | None:
        return next((m for m, own in self.sorties.items() if sortie in own), None)

    def refuses(self, sortie: str, agent: str | None = None) -> str | None:
        """Return the kind of error for work on a sortie, None when it is allowed."""
        mission = self.mission_of(sortie)
        if mission is None:
            return "not_found"
        work = self.sorties[mission][sortie]
        stranger = agent and work.agent and work.agent != agent
        over = work.status in CLOSED or self.missions[mission] not in OPEN
        return "invalid_state" if over or stranger else None

    def work(self, sortie: str, *, begins: bool = False, **changes: Any) -> list[str]:
        """Change a sortie; return the details of the milestone checkpoint that it takes."""
        mission = self.mission_of(sortie)
        assert mission is not None
        if begins and self.missions[mission] == "pending":
            self.missions[mission] = "in_progress"
        self.sorties[mission][sortie] = replace(self.sorties[mission][sortie], **changes)
        return self.milestone(mission)

    def percent(self, mission: str) -> int:
        own = self.sorties[mission].values()
        done = sum(work.status == "completed" for work in own)
        return int(done * 100 / len(own) + 0.5) if own else 0

    def mark(self, mission: str) -> int:
        return max(mark for mark in (0, 25, 50, 75) if mark <= self.percent(mission))

    def milestone(self, mission: str) -> list[str]:
        mark = self.mark(mission)
        if mark <= self.marks[mission]:
            return []
        self.marks[mission] = mark
        return [f"Reached {mark}% milestone"]

    # Locks

    def lease(self, path: str, now: int) -> Lease | None:
        """Return the lease that guards a file now."""
        lease = self.leases.get(path)
        return lease if lease and lease.until > now else None

    def path_of(self, lock: str) -> str | None:
        """Return the file of a lock that nobody has closed."""
        return next((path for path, lease in self.leases.items() if lease.id == lock), None)

    def refuses_holder(self, lock: str, agent: str, now: int) -> str | None:
        """Return the kind of error when an agent renews or releases a lock."""
        if lock not in self.grants:
            return "not_found"
        path = self.path_of(lock)
        mine = path and self.lease(path, now) and self.leases[path].agent == agent
        return None if mine else "invalid_state"

    def seen_working(self, agent: str, now: int) -> None:
        """An agent did something: its leases go on, each by its own length."""
        for lease in self.leases.values():
            if lease.agent == agent and lease.until > now:
                lease.until = max(lease.until, now + lease.length)

    # Mail

    def reader(self, agent: str) -> str:
        seen = {agent}
        while self.agents.get(agent) == "lost" and self.heirs.get(agent, agent) not in seen:
            agent = self.heirs[agent]
            seen.add(agent)
        return agent

    def inbox(self, agent: str) -> list[str]:
        waiting = ("queued", "delivered")
        return [letter for letter, to in self.letters.items() if to.get(agent) in waiting]

    # Silence

    def at_work(self, mission: str, awake: int) -> None:
        self.active[mission] = awake
        self.silent.discard(mission)
        self.quiet.pop(mission, None)

    def heard(self, agent: str, awake: int) -> None:
        """An agent that was only not heard of is back; one with a successor is not."""
        self.seen[agent] = awake
        if self.agents.get(agent) == "lost" and agent not in self.heirs:
            self.agents[agent] = "active"

    def fall_silent(self, awake: int, since: int) -> tuple[set[str], set[str]]:
        """Lose whom nobody has heard; return missions that are silent now, and that may be."""
        for agent, status in self.agents.items():
            if status == "active" and awake - max(self.seen.get(agent, 0), since) > LIMIT:
                self.agents[agent] = "lost"
        running = {one for one, status in self.missions.items() if status == "in_progress"}
        at = {one: self.active.get(one) for one in running - self.silent}
        unknown = {one for one, when in at.items() if when is None}
        over = {one for one, when in at.items() if when is not None and awake - when > LIMIT}
        self.silent |= over
        return over, over | unknown

    # Checkpoints

    def of(self, mission: str) -> list[KeptCheckpoint]:
        """Return a mission's checkpoints, newest first."""
        return [kept for kept in self.checkpoints.values() if kept.mission == mission][::-1]

    def newest(self, mission: str) -> KeptCheckpoint | None:
        return next((kept for kept in self.of(mission) if not kept.undo), None)

    def forget(self, checkpoint: str) -> None:
        del self.checkpoints[checkpoint]
        self.deleted.add(checkpoint)

    def holds(self, mission: str, now: int) -> tuple[Any, ...]:
        """Return all that a checkpoint of a mission taken now must hold."""
        locks = sorted(
            (path, lease.agent, lease.length)
            for path, lease in self.leases.items()
            if lease.mission == mission and lease.until > now
        )
        queued = {
            letter: sorted(agent for agent, status in to.items() if status == "queued")
            for letter, to in self.letters.items()
            if self.posted_in[letter] == mission
        }
        letters = {letter: to for letter, to in queued.items() if to}
        return self.missions[mission], self.sorties[mission], locks, letters

    def prunable(self, mission: str, now: int, days: int, keep: int, waits: bool) -> set[str]:
        """Return what pruning has to take from a mission; everything else must stay."""
        kept = self.of(mission)
        newest = self.newest(mission)
        if self.missions[mission] not in OPEN:
            closing = [one for one in kept if one.details == "Mission completed" and not one.undo]
            completed = self.missions[mission] == "completed"
            final = closing[0] if closing and completed else newest
            too_old = final and max(final.stamp, self.ended.get(mission, 0)) < now - 30 * DAY
            return {one.id for one in kept if one is not final or too_old}
        needed = {one.id for one in kept[:keep]} | ({newest.id} if newest else set())
        if waits:
            needed |= {one.id for one in kept if not one.used and not one.undo}
        return {one.id for one in kept if not days or one.stamp < now - days * DAY} - needed

    # Recovery

    def recover(
        self,
        kept: KeptCheckpoint,
        now: int,
        *,
        rewind: bool,
        force: bool,
        only: str | None,
        named: bool,
    ) -> None:
        """Bring a mission back from a checkpoint, or one agent's part of it."""
        mission, own = kept.mission, self.sorties[kept.mission]
        for sortie, then in kept.sorties.items():
            at_hand = own.get(sortie)
            elsewhere = only and at_hand and at_hand.agent not in (None, only)
            since = at_hand and at_hand.status == "completed" != then.status and not rewind
            if not (only and then.agent != only) and not elsewhere and not since:
                own[sortie] = then
        for sortie in self.brought_back(kept) & own.keys() - kept.sorties.keys():
            if own[sortie].status in ("pending", "assigned") and only in (None, own[sortie].agent):
                del own[sortie]
        self._recover_locks(kept, now, force, only)
        for letter, agent in self.taken_from(kept, only):
            self.letters[letter][agent] = "queued"
        again = named and self.quiet.get(mission) == kept.id
        if self.missions[mission] not in OPEN and not again:
            self.missions[mission] = kept.status if kept.status in OPEN else "in_progress"
        elif kept.status not in OPEN and named and not again:
            self.missions[mission] = kept.status
        self.marks[mission] = self.mark(mission)
        self.recovered(kept)

    def taken_from(self, kept: KeptCheckpoint, only: str | None) -> set[tuple[str, str]]:
        """Return letters that a recovery queues: taken from an agent that has come back since.

        Where it has not, its successor has them already.
        """
        meant = {
            (letter, agent, self.reader(agent))
            for letter, to in kept.letters.items()
            for agent in to
            if only in (None, agent)
        }
        return {
            (letter, reader)
            for letter, agent, reader in meant
            if not {agent, reader} & self.letters[letter].keys()
        }

    def recovered(self, kept: KeptCheckpoint) -> None:
        kept.used = True
        self.quiet[kept.mission] = kept.id
        self.recoveries.append(kept)

    def brought_back(self, kept: KeptCheckpoint) -> set[str]:
        """Return the sorties that recoveries since a checkpoint took from older ones.

        Those that the checkpoint lacks had been removed before it was taken.
        """
        older = list(self.checkpoints)[: list(self.checkpoints).index(kept.id)]
        since = [one for one in self.recoveries[kept.recoveries :] if one.id in older]
        return {sortie for one in since for sortie in one.sorties}

    def _recover_locks(self, kept: KeptCheckpoint, now: int, force: bool, only: str | None) -> None:
        then = {(path, agent) for path, agent, _ in kept.locks}
        for path, lease in list(self.leases.items()):
            orphan = self.agents.get(lease.agent) == "lost" and lease.mission == kept.mission
            if orphan and (path, lease.agent) not in then and only in (None, lease.agent):
                del self.leases[path]
        for path, agent, length in kept.locks:
            if self.agents.get(agent) == "gone" or only not in (None, agent):
                continue
            held = self.lease(path, now)
            if held is None or held.agent == agent or force:
                was = held if held and held.agent == agent else None
                self.leases[path] = Lease("", agent, 0, now + length, length, kept.mission, was)
