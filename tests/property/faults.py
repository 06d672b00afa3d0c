"""Time, restarts, damage and repetition: what happens to a fleet without anybody's intention."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import precondition, rule

from fleetd.domain.checkpoints import checkpoints
from fleetd.protocol.records import Checkpoint, RestoreResult
from fleetd.protocol.requests.checkpoint import (
    CheckpointCreate,
    CheckpointDelete,
    CheckpointGet,
    CheckpointVerify,
)
from fleetd.protocol.requests.recovery import RecoveryContextGet
from tests.property.checker import Step, work_of
from tests.property.machine import AGENT, FleetStateMachine, present, some
from tests.support.fleet import DAY, HOUR, MINUTE, SECOND

TIMES = [SECOND, 4 * SECOND, 6 * MINUTE, 3 * HOUR, 4 * DAY, 8 * DAY]


class TimeRules(FleetStateMachine):
    """Time, restarts, damage, repetition."""

    @rule(ms=st.sampled_from(TIMES))
    def time_passes(self, ms: int) -> None:
        self.clock.pass_by(ms)
        self.check()

    @rule(ms=st.sampled_from([-HOUR, -MINUTE, -SECOND, SECOND, MINUTE, HOUR]))
    def step_clock(self, ms: int) -> None:
        """Somebody sets the wall clock."""
        self.clock.step(ms)
        self.check()

    @rule(reboot=st.booleans())
    def restart(self, reboot: bool) -> None:
        self.fleet.close()
        if reboot:
            self.clock.reboot()
            self.model.active.clear()
            self.model.seen.clear()
        self.latest = max(self.latest, self.now)
        self.open()
        self.check()
        self.check_files()

    @rule(mission=some("mission"))
    def crash_after_a_checkpoint(self, mission: str) -> None:
        """The daemon is killed before it has written the file."""
        self.witness.remember(self.now)
        request = CheckpointCreate(mission, wait_for_backup=False)
        self.crash(lambda fleet: fleet.do(request), Step([(mission, "manual", None)]))

    @present("live checkpoint")
    @rule(checkpoint=some("live checkpoint"))
    def crash_after_a_deletion(self, checkpoint: str) -> None:
        """The daemon is killed when the row is marked and the file is still there."""
        request = CheckpointDelete(checkpoint)
        self.crash(
            lambda fleet: fleet.engine.run(checkpoints.delete, request), Step(gone={checkpoint})
        )

    def crash(self, last: Any, step: Step) -> None:
        self.lives += 1
        self.fleet.crash(self.root / str(self.lives), last)
        self.opened = self.clock.awake_ms
        self.check(step)
        self.check_files()

    def check_files(self) -> None:
        """Every checkpoint has its file, and none that was deleted has one."""
        found = {path.stem for path in self.fleet.checkpoint_files()}
        assert not found & self.model.deleted, "a deleted file is still there"
        assert self.model.checkpoints.keys() - found <= self.spoilt

    @present("live checkpoint")
    @rule(checkpoint=some("live checkpoint"), damage=st.booleans())
    def spoil_file(self, checkpoint: str, damage: bool) -> None:
        """One copy is lost while the daemon is down; the other one serves."""
        self.fleet.close()
        for path in self.fleet.checkpoint_files():
            if path.stem == checkpoint:
                self.spoilt.add(checkpoint)
                if damage:
                    path.write_bytes(path.read_bytes()[:100])
                else:
                    path.unlink()
        self.open()
        kept = self.model.checkpoints[checkpoint]
        served = self.ask(CheckpointGet(checkpoint))
        assert {one.id: work_of(one) for one in served.sorties} == kept.sorties
        self.check()

    @rule()
    def repair(self) -> None:
        self.ask(CheckpointVerify(repair=True))
        assert self.ask(CheckpointVerify()).ok
        self.spoilt.clear()
        self.check()
        self.check_files()

    @precondition(lambda machine: bool(machine.said))
    @rule(back=st.integers(0, 30))
    def say_again(self, back: int) -> None:
        """A client that heard no answer asks again under its key: nothing happens twice."""
        at, request, result = self.said[-1 - back % len(self.said)]
        if request.idempotency_key is None or self.latest - at >= 24 * HOUR:
            return
        again = self.fleet.call(lambda fleet: fleet.do(request))
        assert essence(again) == essence(result)
        self.check()

    @rule(mission=some("mission"), agent=st.none() | AGENT)
    def brief(self, mission: str, agent: str | None) -> None:
        newest = self.model.newest(mission)
        briefing = self.ask(RecoveryContextGet(mission, agent))
        assert briefing.checkpoint_id == (newest.id if newest else None)
        assert briefing.prompt
        self.check()


def essence(result: Any) -> Any:
    """Return what must not differ when a request is answered again."""
    if isinstance(result, Checkpoint):  # its reply also says what became of it since
        return result.id
    if isinstance(result, RestoreResult):
        return result.recovery_id, result.checkpoint_id, result.changed
    return result
