"""One fleet beside its model: asking it for something, and comparing the two after each step."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis.stateful import RuleBasedStateMachine, precondition

from fleetd.config import Limits
from fleetd.protocol.errors import FleetError
from fleetd.protocol.request import Mutation, Request
from tests.property.checker import MOST, FleetChecker, FleetView, Step
from tests.property.model import CLOSED, OPEN, Model
from tests.property.sync_fleet import SyncFleet
from tests.support.fleet import Clock, Fleet

AGENT = st.sampled_from(["spec-1", "spec-2", "dispatch-1"])


def some(kind: str) -> st.SearchStrategy[Any]:
    """Draw one of the records of a kind that there are, or once were."""
    return st.runner().flatmap(lambda machine: st.sampled_from(machine.records(kind)))


def present(kind: str) -> Any:
    """Leave a rule out as long as there are no records of a kind."""
    return precondition(lambda machine: bool(machine.records(kind)))


async def answer(fleet: Fleet, request: Request[Any]) -> tuple[Any, FleetError | None]:
    """Return the result of a request, or how it was refused; any other error is a defect."""
    try:
        return await fleet.do(request), None
    except FleetError as refusal:
        return None, refusal


class FleetStateMachine(RuleBasedStateMachine):
    """One fleet and its model; the rules are in the modules beside this one."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fleet-"))
        (self.root / "0").mkdir()
        self.clock, self.model = Clock(), Model()
        self.witness = FleetChecker(self.model)
        self.made = 0
        self.lives = 0
        self.latest = self.clock()
        self.said: list[tuple[int, Mutation[Any], Any]] = []
        self.spoilt: set[str] = set()
        limits = Limits(checkpoints_per_mission=MOST)
        self.fleet = SyncFleet(self.root / "0", self.clock, self.new_id, limits=limits)
        self.open()

    def open(self) -> None:
        self.opened = self.clock.awake_ms
        self.fleet.open()

    def teardown(self) -> None:
        self.fleet.close()
        shutil.rmtree(self.root)

    def new_id(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}-{self.made:08x}"

    def records(self, kind: str) -> list[str]:
        model = self.model
        running = [one for one, status in model.missions.items() if status in OPEN]
        undone = [
            name
            for one in running
            for name, work in model.sorties[one].items()
            if work.status not in CLOSED
        ]
        # What can still change is met more often than what is over.
        known: dict[str, list[str]] = {
            "mission": 3 * running + list(model.missions),
            "sortie": 3 * undone + list(model.ever),
            "lock": list(model.grants)[-4:],
            "letter": list(model.letters)[-4:],
            "checkpoint": 3 * list(model.checkpoints) + sorted(model.deleted)[-3:],
            "live checkpoint": list(model.checkpoints),
            "registered": list(model.agents),
        }
        return sorted(known[kind])

    @property
    def now(self) -> int:
        return self.clock()

    # One step: a request, what should come of it, and a look at everything

    def ask(self, request: Request[Any], refused: str | set[str] | None = None) -> Any:
        """Send a request; it must be refused as foreseen, or must not be refused.

        Returns the result, None for a refusal.
        """
        self.witness.remember(self.now)
        if isinstance(request, Mutation) and len(self.said) % 2:
            key = f"key-{self.made}-{len(self.said)}-{self.now}"
            request = msgspec.structs.replace(request, idempotency_key=key)
        allowed = refused if isinstance(refused, set) else {refused}
        result, refusal = self.fleet.call(lambda fleet: answer(fleet, request))
        if refusal is not None:
            assert refusal.kind in allowed, f"{refusal.kind}: {refusal.message}"
            assert refusal.message
            assert refusal.hint
            return None
        assert None in allowed, f"not refused: {refused}"
        if isinstance(request, Mutation):
            self.said.append((self.now, request, result))
        return result

    def settle_step(self) -> None:
        """Let everything settle, and look at all of it."""

        async def look(fleet: Fleet) -> FleetView:
            await fleet.settle()
            return await FleetView.of(fleet, self.witness.position)

        self.view = self.fleet.call(look)

    def compare(self, step: Step) -> None:
        """Compare what was seen last with the model and with what the step was to do."""
        self.latest = max(self.latest, self.now)
        self.witness.compare(self.view, step, self.now, self.clock.awake_ms)

    def check(self, step: Step | None = None) -> None:
        """Look at everything and compare."""
        self.settle_step()
        self.compare(step or Step())

    def done(self, mission: str | None, details: list[str]) -> None:
        """A step is over that may have taken a checkpoint by passing a milestone."""
        self.check(Step([(str(mission), "progress", text) for text in details]))
