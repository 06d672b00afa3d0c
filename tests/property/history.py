"""What makes a fleet remember and forget: checkpoints, recoveries, pruning, time, restarts."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from fleetd.protocol.records import Lock, RestoreResult
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointPrune,
)
from fleetd.protocol.requests.recovery import RecoveryDetect, RecoveryRestore
from fleetd.protocol.timestamps import to_ms
from tests.property.checker import Step, work_of
from tests.property.machine import AGENT, present, some
from tests.property.model import CLOSED, OPEN, KeptCheckpoint, Lease
from tests.property.traffic import TrafficRules
from tests.property.work import WorkRules
from tests.support.fleet import DAY, MINUTE, SECOND


class PastRules(WorkRules, TrafficRules):
    """Checkpoints, recoveries, pruning, time, restarts."""

    # Checkpoints

    @rule(mission=some("mission"), wait=st.booleans())
    def take_checkpoint(self, mission: str, wait: bool) -> None:
        taken = self.ask(CheckpointCreate(mission, wait_for_backup=wait))
        if wait:
            assert taken.storage_locations == ["sqlite", "file"]
        self.check(Step([(mission, "manual", None)]))

    @present("checkpoint")
    @rule(checkpoint=some("checkpoint"))
    def delete_checkpoint(self, checkpoint: str) -> None:
        there = checkpoint in self.model.checkpoints
        self.ask(CheckpointDelete(checkpoint), None if there else "not_found")
        self.check(Step(gone={checkpoint} if there else set()))
        self.ask(CheckpointGet(checkpoint), "not_found")

    @rule(
        mission=st.none() | some("mission"),
        days=st.sampled_from([0, 1, 7, None]),
        keep=st.sampled_from([1, 2, 4, None]),
        dry_run=st.booleans(),
    )
    def prune(self, mission: str | None, days: int | None, keep: int | None, dry_run: bool) -> None:
        missions = [mission] if mission else self.records("mission")
        waiting = {one.mission_id for one in self.ask(RecoveryDetect()).candidates}
        options = (7 if days is None else days, keep or 3)
        doomed = set()
        for one in missions:
            doomed |= self.model.prunable(one, self.now, *options, one in waiting)
        pruned = self.ask(CheckpointPrune(days, keep, mission, dry_run))
        assert {one.id for one in pruned.details} == doomed
        assert pruned.deleted == len(doomed)
        self.check(Step(gone=set() if dry_run else doomed))

    # Recovery

    @rule(
        mission=some("mission"),
        rewind=st.booleans(),
        force=st.booleans(),
        rehearse=st.booleans(),
        then=st.sampled_from(["go on", "again", "undo", "recover the newest"]),
    )
    def recover(self, mission: str, rewind: bool, force: bool, rehearse: bool, then: str) -> None:
        self.recover_from(None, mission, rewind, force, rehearse, then)

    @present("checkpoint")
    @rule(
        checkpoint=some("checkpoint"),
        rewind=st.booleans(),
        force=st.booleans(),
        rehearse=st.booleans(),
        then=st.sampled_from(["go on", "again", "undo", "recover the newest"]),
    )
    def recover_named(
        self, checkpoint: str, rewind: bool, force: bool, rehearse: bool, then: str
    ) -> None:
        self.recover_from(checkpoint, None, rewind, force, rehearse, then)

    @present("registered")
    @rule(agent=some("registered"), mission=some("mission"))
    def recover_agent(self, agent: str, mission: str) -> None:
        kept = self.model.newest(mission)
        refused = None if kept and self.model.missions[mission] in OPEN else "invalid_state"
        options: dict[str, Any] = {"agent_id": agent, "scope": "agent"}
        others = self.held_by_others(agent)
        if self.restore(kept, refused, {"mission_id": mission, **options}, only=agent):
            assert self.held_by_others(agent).items() >= others.items(), "it was not the agent's"

    def held_by_others(self, agent: str) -> dict[str, tuple[str, int]]:
        leases = self.model.leases.items()
        return {
            path: (lease.id, lease.token)
            for path, lease in leases
            if lease.agent != agent and lease.until > self.now
        }

    def recover_from(
        self,
        checkpoint: str | None,
        mission: str | None,
        rewind: bool,
        force: bool,
        rehearse: bool,
        then: str,
    ) -> None:
        model = self.model
        kept = model.checkpoints.get(checkpoint) if checkpoint else model.newest(str(mission))
        refused = None if kept else "not_found" if checkpoint else "invalid_state"
        again = checkpoint and kept and model.quiet.get(kept.mission) == checkpoint
        if kept and model.missions[kept.mission] not in OPEN and not rewind and not again:
            refused = "invalid_state"
        which = {"checkpoint_id": checkpoint, "mission_id": mission}
        how = {"rewind": rewind, "force_locks": force}
        rehearsed = None
        if rehearse:
            rehearsed = self.ask(RecoveryRestore(**which, **how, dry_run=True), refused)
            self.check()
        before = self.stand(kept)
        result = self.restore(kept, refused, {**which, **how})
        if result is None or kept is None:
            return
        assert rehearsed is None or rehearsed.would_restore == result.changed
        after = self.stand(kept)
        if then == "again":
            once_more = kept if checkpoint else model.newest(kept.mission)
            self.restore(once_more, None, {**which, **how})
            assert self.stand(kept) == after, "twice was not the same as once"
        elif then == "recover the newest" and model.missions[kept.mission] in OPEN:
            self.restore(model.newest(kept.mission), None, {"mission_id": kept.mission})
            assert self.stand(kept) == after, "the next recovery left what was brought back"
        elif then == "undo":
            self.undo(kept, result, before)

    # Stories: steps that mean more together

    @present("sortie")
    @rule(
        mission=some("mission"),
        sortie=some("sortie"),
        agent=st.none() | st.just("spec-1"),
        rewind=st.booleans(),
    )
    def finish_and_recover(
        self, mission: str, sortie: str, agent: str | None, rewind: bool
    ) -> None:
        """Work is finished after a checkpoint; a recovery from it keeps it, or takes it back."""
        mission = self.model.mission_of(sortie) or mission
        if agent:
            self.register(agent, mission)
            self.start(sortie, agent)
        self.take_checkpoint(mission, wait=False)
        taken = list(self.model.checkpoints)[-1]
        self.complete(sortie, None)
        if agent:
            self.recover_agent(agent, mission)
        self.recover_from(taken, None, rewind, False, False, "go on")
        self.complete(sortie, None)

    @rule(mission=some("mission"), agent=AGENT, ack=st.booleans())
    def read_and_recover(self, mission: str, agent: str, ack: bool) -> None:
        """Mail is read after a checkpoint; a recovery from it does not deliver it again."""
        self.send("spec-1", [agent], mission, 1)
        self.take_checkpoint(mission, wait=False)
        self.inbox(agent, 50)
        letter = list(self.model.letters)[-1] if self.model.letters else None
        if ack and letter:
            self.ack(letter, agent)
            self.requeue(letter, agent)
        self.recover_from(None, mission, False, False, False, "go on")
        self.inbox(agent, 50)

    @rule(
        mission=some("mission"),
        times=st.integers(2, 5),
        ms=st.sampled_from([SECOND, -MINUTE, 6 * MINUTE]),
        keep=st.integers(1, 3),
        older=st.booleans(),
    )
    def take_several_and_prune(
        self, mission: str, times: int, ms: int, keep: int, older: bool
    ) -> None:
        for _ in range(times):
            self.take_checkpoint(mission, wait=False)
            if ms < 0:
                self.clock.step(ms)
            else:
                self.clock.pass_by(ms)
        if older:
            self.clock.pass_by(DAY)
        self.prune(mission, 0, keep, dry_run=False)

    @rule(file=st.just("/srv/a.py"), mission=some("mission"), force=st.booleans())
    def lose_locks_and_recover(self, file: str, mission: str, force: bool) -> None:
        """A lock goes to somebody else after a checkpoint, and the mission is silent."""
        self.acquire(file, "spec-1", mission, 5 * SECOND)
        self.take_checkpoint(mission, wait=False)
        self.clock.pass_by(6 * MINUTE)
        self.acquire(file, "spec-2", None, 10 * MINUTE)
        self.notice()
        self.recover_from(None, mission, False, force, False, "again")
        self.notice()

    def stand(self, kept: KeptCheckpoint | None) -> Any:
        """Return where the work of a checkpoint's mission stands."""
        if kept is None:
            return None
        return self.model.missions[kept.mission], dict(self.model.sorties[kept.mission])

    def restore(
        self,
        kept: KeptCheckpoint | None,
        refused: str | None,
        options: dict[str, Any],
        only: str | None = None,
    ) -> RestoreResult | None:
        """Recover and compare; returns None for a refusal."""
        model = self.model
        result = self.ask(RecoveryRestore(**options), refused)
        if result is None or kept is None:
            self.check()
            return None
        assert result.checkpoint_id == kept.id
        rewind, force = options.get("rewind", False), options.get("force_locks", False)
        before, reopened = self.stand(kept), model.missions[kept.mission] not in OPEN
        named = "checkpoint_id" in options and options["checkpoint_id"] is not None
        self.witness.read -= model.taken_from(kept, only)
        model.recover(kept, self.now, rewind=rewind, force=force, only=only, named=named)
        if reopened and model.missions[kept.mission] in OPEN:
            model.active[kept.mission] = self.clock.awake_ms
            model.silent.discard(kept.mission)
        assert result.undo_checkpoint_id or self.stand(kept) == before, "no way back"
        self.check(Step(recovery=True, rewinds=rewind, spare=kept.id))
        assert result.prompt
        return result  # type: ignore[no-any-return]

    def undo(self, kept: KeptCheckpoint, result: RestoreResult, before: Any) -> None:
        """Undo a recovery at once: the work stands where it stood."""
        undo = self.model.checkpoints.get(result.undo_checkpoint_id or "")
        if undo is not None:
            options = {"checkpoint_id": undo.id, "rewind": True, "force_locks": True}
            self.restore(undo, None, options)
        assert self.stand(kept) == before, "undone, and yet not what it was"

    @rule(agents=st.lists(AGENT, min_size=2, max_size=2, unique=True), mission=some("mission"))
    def take_over(self, agents: list[str], mission: str) -> None:
        """Whatever a lost agent had goes to its successor; nothing else is lost by it."""
        (lost, heir), model = agents, self.model
        kept = model.newest(mission)
        if kept is None:
            return
        request = RecoveryRestore(mission_id=mission, agent_id=heir, take_over_from=lost)
        may_fail = {None, "not_found", "invalid_state"}
        waiting = [one for one in model.inbox(lost) if model.posted_in[one] in (None, mission)]
        if self.ask(request, may_fail) is None:
            self.check()
            return
        self.settle_step()
        for one in waiting:
            assert heir in {to.agent_id for to in self.view.messages[one].deliveries}, "lost mail"
        for sortie in self.view.sorties[mission].values():
            assert sortie.assigned_to != lost or sortie.status in CLOSED
        for lock in self.view.locks:
            assert lock.held_by != lost or lock.mission_id not in (None, mission)
            assert lock.id in model.grants or lock.fencing_token > self.witness.token
        self.adopt(mission)
        model.heirs[lost] = heir
        if heir in model.agents:  # registered, so it is in the mission now
            model.joined[heir] = mission
        model.recovered(kept)
        model.joined.setdefault(lost, mission)
        self.compare(Step(recovery=True, spare=kept.id))

    def adopt(self, mission: str) -> None:
        """Take what is there for what should be; the witness still looks at what always holds."""
        model, view = self.model, self.view
        model.agents = dict(view.agents)
        model.missions[mission] = view.missions[mission].status
        model.sorties[mission] = {name: work_of(one) for name, one in view.sorties[mission].items()}
        model.marks[mission] = model.mark(mission)
        model.letters = {
            name: {to.agent_id: to.status for to in one.deliveries}
            for name, one in view.messages.items()
        }
        rows = self.fleet.sql("SELECT id FROM locks WHERE status = 'active'")
        unclosed = {row["id"] for row in rows}
        run_out = {path: own for path, own in model.leases.items() if own.id in unclosed}
        model.leases = run_out | {lock.normalized_path: lease_of(lock) for lock in view.locks}


def lease_of(lock: Lock) -> Lease:
    until = to_ms(lock.expires_at or "")
    holder, token, length = lock.held_by, lock.fencing_token, lock.timeout_ms
    return Lease(lock.id, holder, token, until, length, lock.mission_id)
