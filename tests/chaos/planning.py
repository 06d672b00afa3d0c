"""User actions on missions and sorties; must not judge the results."""

from typing import Any

from tests.chaos.worker import CrewWorker

OPEN = ("pending", "in_progress")
ENDED = ("completed", "failed", "cancelled")
UNDONE = ("pending", "assigned", "in_progress", "blocked")
GO_WITH_IT = ("sortie", "kept", "message")
MOST_MISSIONS = 3


class Planning(CrewWorker):
    """A worker with missions of its own."""

    def agent(self) -> str:
        """Return one of the worker's own agents."""
        return f"{self.name}-{self.chance.choice('ab')}"

    def sortie(self, *status: str) -> dict[str, Any]:
        """Return a sortie of an open mission, {} if there is none."""
        missions = [one["id"] for one in self.own("mission", status=OPEN)]
        return self.pick("sortie", status=status or UNDONE, mission_id=missions)

    def look_again(self, mission: str) -> None:
        """Read again what a larger change of a mission may have affected."""
        again = self.look("mission.get", {"mission_id": mission})
        sorties = self.look("sortie.list", {"mission_id": mission})["sorties"]
        locks = self.look("lock.list", {"mission_id": mission})["locks"]
        for one in (
            *self.own("sortie", mission_id=[mission]),
            *self.own("lock", mission_id=[mission]),
        ):
            self.facts.pop(("sortie", one["id"]), None)
            self.facts.pop(("lock", one["id"]), None)
        self.note("mission", again)
        for one in sorties:
            self.note("sortie", one)
        for one in locks:
            if one["held_by"].startswith(f"{self.name}-"):
                self.note("lock", one)
        self.stale.discard(mission)

    def work(self, method: str, sortie: dict[str, Any], event: str, **params: Any) -> None:
        """Do something to a sortie."""
        self.ask(
            method,
            {"sortie_id": sortie["id"], **params},
            shows=(event, sortie["id"]),
            touches=[sortie["id"], sortie["mission_id"]],
            mission=sortie["mission_id"],
            then=self._worked,
        )

    def _worked(self, sortie: dict[str, Any]) -> None:
        self.note("sortie", sortie)
        # Starting a sortie also starts its mission.
        mission = self.facts[("mission", sortie["mission_id"])]
        if sortie["status"] == "in_progress" and mission["status"] == "pending":
            mission["status"] = "in_progress"

    # Missions

    def create_mission(self) -> None:
        if len(self.own("mission", status=OPEN)) >= MOST_MISSIONS:
            return
        number, mark = self.chance.randrange(7), self.mark()
        sorties = [{"title": f"S{n}", "files": [f"src/{n}.py"]} for n in range(number)]
        self.ask(
            "mission.create",
            {
                "title": f"Mission {mark}",
                "project_dir": str(self.project),
                "metadata": {"sorties": number},
                "sorties": sorties,
            },
            shows=("mission_created", mark),
            then=self._created,
        )

    def _created(self, mission: dict[str, Any]) -> None:
        self.note("mission", mission)
        self.said[-1].mission = mission["id"]
        self.stale.add(mission["id"])

    def start_mission(self) -> None:
        if mission := self.pick("mission", status=["pending"]):
            self._mission("mission.start", mission, "mission_started")

    def update_mission(self) -> None:
        if mission := self.pick("mission", status=OPEN):
            self._mission("mission.update", mission, "mission_updated", description=self.mark())

    def end_mission(self) -> None:
        """Complete a mission whose sorties are all done; sometimes cancel one."""
        mission = self.pick("mission", status=OPEN)
        if not mission:
            return
        own = [one["status"] for one in self.own("sortie", mission_id=[mission["id"]])]
        if own and not set(own) & set(UNDONE):
            self._mission("mission.complete", mission, "mission_completed")
        elif self.chance.random() < 0.2:
            end, told = self.chance.choice(
                [("mission.fail", "mission_failed"), ("mission.cancel", "mission_cancelled")]
            )
            self._mission(end, mission, told, reason=self.mark())

    def _mission(self, method: str, mission: dict[str, Any], event: str, **params: Any) -> None:
        name = mission["id"]
        self.ask(
            method,
            {"mission_id": name, **params},
            shows=(event, name),
            touches=[name],
            mission=name,
            then=lambda told: self.note("mission", told),
        )

    def delete_mission(self) -> None:
        if mission := self.pick("mission", status=["completed", "failed", "cancelled"]):
            self._end("mission.delete", mission["id"])

    def forget_mission(self) -> None:
        """Create a mission without agents, or forget it: that would forget its agents too."""
        if scrap := self.pick("scrap"):
            self._end("system.forget", scrap["id"])
        else:
            said = {"title": f"Scrap {self.mark()}", "sorties": [{"title": "S0"}]}
            self.ask("mission.create", said, then=lambda told: self.note("scrap", told))

    def _end(self, method: str, mission: str) -> None:
        mine = [key for key, one in self.facts.items() if one.get("mission_id") == mission]
        going = [
            ("mission", mission),
            ("scrap", mission),
            *(key for key in mine if key[0] in GO_WITH_IT),
        ]
        self.maybe_gone.update([*going, *mine])
        self.ask(
            method,
            {"mission_id": mission},
            touches=[mission, *(name for _, name in mine)],
            mission=mission,
            then=lambda _: self._ended(going, mine),
        )

    def _ended(self, going: list[tuple[str, str]], mine: list[tuple[str, str]]) -> None:
        self.end(*going)
        for key in mine:  # an agent or a lock may outlive its mission
            self.facts.pop(key, None)

    # Sorties

    def add_sortie(self) -> None:
        if mission := self.pick("mission", status=OPEN):
            mark = self.mark()
            self.ask(
                "sortie.create",
                {"mission_id": mission["id"], "title": f"More {mark}"},
                shows=("sortie_created", mark),
                touches=[mission["id"]],
                mission=mission["id"],
                then=lambda told: self.note("sortie", told),
            )

    def assign(self) -> None:
        if sortie := self.sortie():
            self.work("sortie.assign", sortie, "sortie_assigned", agent_id=self.agent())

    def start(self) -> None:
        if sortie := self.sortie("pending", "assigned"):
            agent = sortie["assigned_to"] or self.agent()
            self.work("sortie.start", sortie, "sortie_started", agent_id=agent)

    def progress(self) -> None:
        if sortie := self.sortie("in_progress"):
            done = {"percent": self.chance.randrange(100), "notes": self.mark()}
            self.work("sortie.progress", sortie, "sortie_progressed", **done)

    def block(self) -> None:
        if sortie := self.sortie("blocked"):
            self.work("sortie.unblock", sortie, "sortie_unblocked")
        elif sortie := self.sortie("in_progress"):
            self.work("sortie.block", sortie, "sortie_blocked", reason=self.mark())

    def complete(self) -> None:
        if sortie := self.sortie("in_progress"):
            self.work("sortie.complete", sortie, "sortie_completed", result=self.mark())

    def fail_sortie(self) -> None:
        if sortie := self.sortie("in_progress", "blocked"):
            self.work("sortie.fail", sortie, "sortie_failed", reason=self.mark())

    def remove(self) -> None:
        if sortie := self.sortie("pending", "assigned"):
            self.maybe_gone.add(("sortie", sortie["id"]))
            self.ask(
                "sortie.remove",
                {"sortie_id": sortie["id"]},
                shows=("sortie_removed", sortie["id"]),
                touches=[sortie["id"], sortie["mission_id"]],
                mission=sortie["mission_id"],
                then=lambda _: self.end(("sortie", sortie["id"])),
            )
