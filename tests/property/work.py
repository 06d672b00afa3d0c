"""What is done to missions and sorties, in any order, and what should come of it."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule

from fleetd.protocol.requests.mission import (
    MissionCancel,
    MissionComplete,
    MissionCreate,
    MissionFail,
    MissionStart,
    NewSortie,
)
from fleetd.protocol.requests.sortie import (
    SortieAssign,
    SortieBlock,
    SortieComplete,
    SortieCreate,
    SortieFail,
    SortieProgress,
    SortieRemove,
    SortieStart,
    SortieUnblock,
)
from tests.property.machine import AGENT, FleetStateMachine, present, some
from tests.property.model import CLOSED, OPEN, Work


class WorkRules(FleetStateMachine):
    """Missions and sorties."""

    @initialize()
    def begin(self) -> None:
        self.create_mission(4)
        self.start_mission(self.records("mission")[0])

    @precondition(lambda self: len(self.model.missions) < 2)
    @rule(sorties=st.integers(0, 4))
    def create_mission(self, sorties: int) -> None:
        new = [NewSortie(f"S{n}") for n in range(sorties)]
        made = self.ask(MissionCreate("Mission", sorties=new))
        own = self.fleet.call(lambda fleet: fleet.sorties(made))
        self.model.missions[made.id], self.model.marks[made.id] = "pending", 0
        self.model.sorties[made.id] = {sortie.id: Work() for sortie in own}
        self.model.ever |= {sortie.id for sortie in own}
        self.check()

    @rule(mission=some("mission"))
    def start_mission(self, mission: str) -> None:
        refused = None if self.model.missions[mission] == "pending" else "invalid_state"
        if self.ask(MissionStart(mission), refused):
            self.model.missions[mission] = "in_progress"
        self.check()

    def over(self, mission: str) -> str | None:
        return None if self.model.missions[mission] in OPEN else "invalid_state"

    @rule(mission=some("mission"))
    def complete_mission(self, mission: str) -> None:
        open_work = any(work.status not in CLOSED for work in self.model.sorties[mission].values())
        details = []
        refused = "invalid_state" if open_work else self.over(mission)
        if self.ask(MissionComplete(mission), refused):
            self.model.missions[mission] = "completed"
            details = ["Mission completed"]
        self.done(mission, details)

    @rule(mission=some("mission"), cancel=st.booleans())
    def give_up_mission(self, mission: str, cancel: bool) -> None:
        request = MissionCancel(mission, "No") if cancel else MissionFail(mission, "No")
        if self.ask(request, self.over(mission)):
            self.model.missions[mission] = "cancelled" if cancel else "failed"
        self.check()

    @rule(mission=some("mission"), agent=st.none() | AGENT)
    def create_sortie(self, mission: str, agent: str | None) -> None:
        made = self.ask(SortieCreate(mission, "More", assigned_to=agent), self.over(mission))
        if made:
            self.model.sorties[mission][made.id] = Work("assigned" if agent else "pending", agent)
            self.model.ever.add(made.id)
        self.check()

    def work(
        self, request: Any, *, only: set[str] | None = None, begins: bool = False, **changes: Any
    ) -> None:
        """Work on a sortie: refused as the model says, else it changes as named."""
        sortie, model = request.sortie_id, self.model
        mission = model.mission_of(sortie)
        refused = model.refuses(sortie, getattr(request, "agent_id", None))
        if mission and not refused and only and model.sorties[mission][sortie].status not in only:
            refused = "invalid_state"
        details = []
        if self.ask(request, refused):
            details = model.work(sortie, begins=begins, **changes)
        self.done(mission, details)

    def owner(self, sortie: str) -> Work:
        mission = self.model.mission_of(sortie)
        return self.model.sorties[mission][sortie] if mission else Work()

    @present("sortie")
    @rule(sortie=some("sortie"), agent=AGENT)
    def assign(self, sortie: str, agent: str) -> None:
        before = self.owner(sortie)
        status = "assigned" if before.status == "pending" else before.status
        request = SortieAssign(sortie, agent)
        mission, refused = self.model.mission_of(sortie), self.model.refuses(sortie)
        details = []
        if self.ask(request, refused):
            details = self.model.work(sortie, status=status, agent=agent)
        self.done(mission, details)

    @present("sortie")
    @rule(sortie=some("sortie"), agent=AGENT)
    def start(self, sortie: str, agent: str) -> None:
        mission = self.model.mission_of(sortie)
        if not self.model.refuses(sortie, agent) and agent in self.model.agents:
            self.model.joined[agent] = self.model.joined[agent] or mission
        changes = {"status": "in_progress", "agent": agent, "begun": True}
        self.work(SortieStart(sortie, agent), begins=True, **changes)

    @present("sortie")
    @rule(sortie=some("sortie"), percent=st.integers(0, 100), agent=st.none() | AGENT)
    def progress(self, sortie: str, percent: int, agent: str | None) -> None:
        before = self.owner(sortie)
        changes: dict[str, Any] = {"progress": percent, "begun": True}
        if before.status in ("pending", "assigned"):
            changes |= {"status": "in_progress", "agent": before.agent or agent}
        self.work(SortieProgress(sortie, percent, "Notes", agent_id=agent), begins=True, **changes)

    @present("sortie")
    @rule(sortie=some("sortie"))
    def block(self, sortie: str) -> None:
        self.work(SortieBlock(sortie, "Stuck"), status="blocked")

    @present("sortie")
    @rule(sortie=some("sortie"))
    def unblock(self, sortie: str) -> None:
        before = self.owner(sortie)
        owned = "in_progress" if before.begun else "assigned"
        status = owned if before.agent else "pending"
        self.work(SortieUnblock(sortie), only={"blocked"}, status=status)

    @present("sortie")
    @rule(sortie=some("sortie"), agent=st.none() | AGENT)
    def complete(self, sortie: str, agent: str | None) -> None:
        by = self.owner(sortie).agent or agent
        changes = {"status": "completed", "agent": by, "progress": 100, "begun": True}
        self.work(SortieComplete(sortie, "Done", agent_id=agent), begins=True, **changes)

    @present("sortie")
    @rule(sortie=some("sortie"), agent=st.none() | AGENT)
    def fail(self, sortie: str, agent: str | None) -> None:
        by = self.owner(sortie).agent or agent
        self.work(SortieFail(sortie, "No", agent_id=agent), status="failed", agent=by)

    @present("sortie")
    @rule(sortie=some("sortie"))
    def remove(self, sortie: str) -> None:
        mission, refused = self.model.mission_of(sortie), self.model.refuses(sortie)
        if self.owner(sortie).status not in ("pending", "assigned"):
            refused = refused or "invalid_state"
        details = []
        if self.ask(SortieRemove(sortie), refused):
            del self.model.sorties[str(mission)][sortie]
            details = self.model.milestone(str(mission))
        self.done(mission, details)
