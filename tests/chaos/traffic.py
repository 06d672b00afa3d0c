"""Actions of users' agents: registration, locks, messages, events; must not judge the results."""

import os
from collections.abc import Sequence
from typing import Any

from tests.chaos.planning import OPEN, Planning

HOUR_MS = 3_600_000
SHARED = ("../a.py", "../b.py")


class AgentTraffic(Planning):
    """A worker with agents, which also write to the agents of others."""

    others: Sequence[str] = ()

    # Agents

    def register(self) -> None:
        agent, mission = self.agent(), self.pick("mission", status=OPEN)
        said = {"agent_id": agent, "role": "specialist"}
        said |= {"mission_id": mission["id"]} if mission else {}
        # With another process, or none, it would be another agent that replaces this one.
        said |= {"pid": os.getpid()} if agent.endswith("a") else {}
        self.ask(
            "agent.register",
            said,
            shows=("agent_registered", agent),
            touches=[agent],
            then=lambda told: self.note("agent", told["agent"]),
        )

    def note_down(self) -> None:
        if agent := self.pick("agent", status=["active"]):
            mark = self.mark()
            self.ask(
                "agent.note",
                {"agent_id": agent["id"], "last_action": mark},
                shows=("agent_noted", mark),
                touches=[agent["id"]],
                then=lambda told: self.note("agent", told),
            )

    def leave(self) -> None:
        if agent := self.pick("agent", status=["active"]):
            locks = [one["id"] for one in self.own("lock", held_by=[agent["id"]])]
            self.ask(
                "agent.deregister",
                {"agent_id": agent["id"]},
                shows=("agent_deregistered", agent["id"]),
                touches=[agent["id"], *locks],
                then=lambda told: self._left(told, locks),
            )

    def _left(self, agent: dict[str, Any], locks: list[str]) -> None:
        self.note("agent", agent)
        self.end(*(("lock", lock) for lock in locks))

    # Locks

    def lock(self) -> None:
        """Lock a file of the worker's own, for a mission if there is one."""
        agent, mission = self.pick("agent", status=["active"]), self.pick("mission", status=OPEN)
        if agent:
            file = f"{agent['id']}-{self.chance.randrange(4)}.py"
            self._acquire(agent["id"], file, mission.get("id"))

    def share(self) -> None:
        """Lock a file that others want too, and wait for it briefly."""
        if agent := self.pick("agent", status=["active"]):
            self._acquire(agent["id"], self.chance.choice(SHARED), None, wait_ms=20)

    def _acquire(self, agent: str, file: str, mission: str | None, **more: Any) -> None:
        mark = self.mark()
        said = {"file": file, "agent_id": agent, "cwd": str(self.project), "purpose": mark}
        said |= {"mission_id": mission} if mission else {}
        path = os.path.normpath(self.project / file)
        held = [one["id"] for one in self.own("lock", normalized_path=[path])]
        self.ask(
            "lock.acquire",
            {**said, "timeout_ms": HOUR_MS, **more},
            may=("lock_conflict",),
            touches=[path, *held],
            mission=mission,
            then=lambda told: self.note("lock", told),
        )

    def renew(self) -> None:
        if lock := self.pick("lock"):
            self.ask(
                "lock.renew",
                {"lock_id": lock["id"], "agent_id": lock["held_by"]},
                touches=[lock["id"]],
                mission=lock["mission_id"],
                then=lambda told: self.note("lock", told),
            )

    def release(self) -> None:
        if lock := self.pick("lock"):
            said = {"lock_id": lock["id"], "agent_id": lock["held_by"]}
            method, event = "lock.release", "lock_released"
            if self.chance.random() < 0.3:
                method, event = "lock.force_release", "lock_force_released"
                said["reason"] = self.mark()
            self.ask(
                method,
                said,
                shows=(event, lock["id"]),
                touches=[lock["id"]],
                mission=lock["mission_id"],
                then=lambda _: self.end(("lock", lock["id"])),
            )

    # Messages

    def write(self) -> None:
        """Write to the worker's own agents and to others', some of which may have left."""
        mark, mission = self.mark(), self.pick("mission", status=OPEN)
        names = [f"{name}-{each}" for name in self.others for each in "ab"]
        to = self.chance.sample(names, self.chance.randint(1, min(4, len(names))))
        said = {"from": self.agent(), "to": to, "subject": mark, "body": "Please look at this."}
        said |= {"mission_id": mission["id"]} if mission else {}
        self.ask(
            "message.send",
            said,
            shows=("message_sent", mark),
            may=("invalid_state",),
            mission=mission.get("id"),
            then=lambda told: self.note("message", told),
        )

    def read(self) -> None:
        agent = self.agent()
        self.ask(
            "message.inbox",
            {"agent_id": agent, "limit": 5},
            then=lambda told: self._read(agent, told["messages"]),
        )

    def _read(self, agent: str, letters: list[dict[str, Any]]) -> None:
        for letter in letters:
            self.facts[("letter", f"{letter['id']} {agent}")] = {
                "id": letter["id"],
                "agent": agent,
                "status": "delivered",
                "mission_id": letter["mission_id"],
            }

    def acknowledge(self) -> None:
        if letter := self.pick("letter", status=["delivered"]):
            name = f"{letter['id']} {letter['agent']}"
            # The mission's owner may have forgotten it; another user's recovery may queue it again.
            self.ask(
                "message.ack",
                {"message_id": letter["id"], "agent_id": letter["agent"]},
                shows=("message_acked", name),
                may=("not_found", "invalid_state"),
                touches=[name],
                mission=letter["mission_id"],
                then=lambda _: letter.update(status="acked"),
            )

    def requeue(self) -> None:
        if message := self.pick("message"):
            mark = message["id"]
            self.ask(
                "message.requeue",
                {"message_id": mark},
                shows=("message_requeued", mark),
                may=("invalid_state",),
                mission=message["mission_id"],
            )

    # Events

    def tell(self) -> None:
        mark, mission = self.mark(), self.pick("mission", status=OPEN)
        said = {"type": "test_told", "data": {"mark": mark}, "agent_id": self.agent()}
        said |= {"mission_id": mission["id"]} if mission else {}
        self.ask(
            "event.append",
            said,
            shows=("test_told", mark),
            mission=mission.get("id"),
            then=lambda told: self.note("event", {**told, "id": str(told["seq"])}),
        )

    def advance(self) -> None:
        end = self.look("event.list", {"since": 2**40, "limit": 1})["position"]
        status = self.look("system.status", {})
        if status["position"] is None:  # the store became unavailable in between
            return
        position, name = min(end, status["position"]), f"{self.name}-reader"
        self.ask(
            "cursor.advance",
            {"consumer": name, "stream": "fleet", "position": position},
            touches=[name],
            then=lambda told: self.note("cursor", {**told, "id": name}),
        )

    def report_error(self) -> None:
        if mission := self.pick("mission", status=["in_progress"]):
            mark = self.mark()
            said = {
                "agent_id": self.agent(),
                "kind": "exception",
                "name": "ValueError",
                "message": mark,
                "mission_id": mission["id"],
            }
            self.ask(
                "error.report",
                said,
                shows=("error_reported", mark),
                mission=mission["id"],
                then=lambda told: self.note(
                    "kept", {"id": told["checkpoint_id"], "mission_id": mission["id"]}
                ),
            )

    def file_of(self, lock: dict[str, Any]) -> str:
        """Return the name by which to ask for a lock."""
        return str(lock["normalized_path"])

    def ask_around(self) -> None:
        """Send some read-only requests, as users do."""
        for method in self.chance.sample(
            [
                "mission.list",
                "agent.list",
                "lock.list",
                "checkpoint.list",
                "recovery.detect",
                "hook.status",
                "recovery.list",
                "system.health",
            ],
            2,
        ):
            self.look(method, {})
        for lock in self.own("lock")[:3]:
            said = {"file": self.file_of(lock), "fencing_token": lock["fencing_token"]}
            assert self.look("lock.check", said)["valid"], f"a held lock guards nothing: {lock}"
