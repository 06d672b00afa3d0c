"""User actions on checkpoints, recoveries, snapshots and hooks; must not judge the results."""

import json
import time
from typing import Any

from tests.chaos.planning import OPEN
from tests.chaos.traffic import AgentTraffic
from tests.chaos.worker import Gone, Said

TODO = ("plan", "build", "test")


class Keeping(AgentTraffic):
    """A worker that checkpoints and recovers its missions, and has a session of an agent CLI."""

    session = 0
    asked = 0
    """How many hooks of the present session have run."""
    briefs = ""
    """The event whose answer has to brief the session, since its window was compacted."""

    # Checkpoints

    def checkpoint(self) -> None:
        if mission := self.pick("mission"):
            said = {
                "mission_id": mission["id"],
                "trigger_details": self.mark(),
                "created_by": self.agent(),
                "wait_for_backup": self.chance.random() < 0.5,
            }
            self.ask("checkpoint.create", said, mission=mission["id"], then=self._kept)

    def _kept(self, checkpoint: dict[str, Any]) -> None:
        self.note("kept", checkpoint)

    def delete_checkpoint(self) -> None:
        if kept := self.pick("kept"):
            key = ("kept", kept["id"])
            self.maybe_gone.add(key)
            # It may have been deleted to make room for others, or have been pruned.
            self.ask(
                "checkpoint.delete",
                {"checkpoint_id": kept["id"]},
                may=("not_found",),
                mission=kept["mission_id"],
                then=lambda _: self.end(key),
            )

    def prune(self) -> None:
        if mission := self.pick("mission"):
            old = [("kept", one["id"]) for one in self.own("kept", mission_id=[mission["id"]])]
            self.maybe_gone.update(old)
            said = {"mission_id": mission["id"], "older_than_days": 0, "keep_per_mission": 3}
            self.ask(
                "checkpoint.prune",
                said,
                mission=mission["id"],
                then=lambda told: self.end(*(("kept", one["id"]) for one in told["details"])),
            )

    # Recovery

    def restore(self) -> None:
        """Restore a mission from its newest checkpoint or from an earlier one."""
        if mission := self.pick("mission", status=OPEN):
            self._restore(mission["id"], dry_run=False)

    def rehearse(self) -> None:
        if mission := self.pick("mission", status=OPEN):
            self._restore(mission["id"], dry_run=True)

    def _restore(self, mission: str, *, dry_run: bool) -> None:
        kept = self.pick("kept", mission_id=[mission]) if self.chance.random() < 0.5 else {}
        said = {"checkpoint_id": kept["id"]} if kept else {"mission_id": mission}
        said |= {"rewind": self.chance.random() < 0.3, "dry_run": dry_run}
        if not dry_run:  # removed sorties may come back
            self.gone -= {key for key in self.gone if key[0] == "sortie"}
        # A lock of one mission may be taken again for another that held it before.
        touched = [
            name
            for (kind, name), one in self.facts.items()
            if kind == "lock" or one.get("mission_id") == mission
        ]
        self.ask(
            "recovery.restore",
            said,
            may=("not_found", "invalid_state"),
            shows=None if dry_run else ("fleet_recovered", mission),
            mission=mission,
            touches=[] if dry_run else [mission, *touched],
            then=lambda told: dry_run or self._restored(mission, told),
        )

    def _restored(self, mission: str, told: dict[str, Any]) -> None:
        self.stale.add(mission)
        for one in self.own("sortie", mission_id=[mission]):
            del self.facts["sortie", one["id"]]
        for one in self.own("lock"):
            del self.facts["lock", one["id"]]
        self.note("recovery", {**told, "id": told["recovery_id"]})
        if told["undo_checkpoint_id"]:
            self.note("kept", {"id": told["undo_checkpoint_id"], "mission_id": mission})

    # Snapshots

    def snapshot(self) -> None:
        outcome = {"kind": "shell", "name": "make", "result": "PASS", "summary": self.mark()}
        said = {"run_id": f"run-{self.name}", "note": self.mark(), "command_outcomes": [outcome]}
        self.ask(
            "snapshot.record",
            said,
            then=lambda told: self.note("snapshot", {**told, "id": told["snapshot_id"]}),
        )

    def prune_snapshots(self) -> None:
        if self.own("snapshot"):
            self.ask("snapshot.prune", {"run_id": f"run-{self.name}"})

    # Hooks

    def hook(self) -> None:
        """Continue the session of an agent CLI, by the events of its hooks."""
        self.asked += 1
        if self.asked == 1:
            return self._deliver("SessionStart", source="startup")
        if self.asked == 2:
            todos = [
                {"content": f"{each} it", "activeForm": each, "status": "pending"} for each in TODO
            ]
            tool = {"tool_name": "TodoWrite", "tool_input": {"todos": todos}}
            return self._deliver("PostToolUse", **tool)
        if self.briefs:
            source = {"source": "compact"} if self.briefs == "SessionStart" else {}
            return self._deliver(self.briefs, **source, prompt=self.mark())
        chosen = self.chance.randrange(12)
        if chosen == 0:
            self.briefs = "SessionStart"
            return self._deliver("PreCompact", trigger="auto")
        if chosen == 1 and self.asked > 8:
            return self._deliver("SessionEnd", reason="other")
        mark = self.mark()
        tool = {
            "tool_name": "Bash",
            "tool_input": {"command": f"make '{mark}'"},
            "tool_response": {"stdout": "", "stderr": "", "interrupted": False},
        }
        return self._deliver("PostToolUse", shows=("command_finished", mark), **tool)

    @property
    def session_id(self) -> str:
        return f"{self.name}-session-{self.session}"

    def _deliver(self, event: str, *, shows: tuple[str, str] | None = None, **told: Any) -> None:
        payload = {
            "session_id": self.session_id,
            "cwd": str(self.place),
            "hook_event_name": event,
            "tool_use_id": self.mark(),
            **told,
        }
        number = f"{self.name}-{len(self.said)}".encode().hex().rjust(32, "0")
        said = {"delivery_id": number, "harness": "claude", "payload": json.dumps(payload)}
        try:
            self.ask(
                "hook.deliver",
                said,
                shows=shows,
                mission=self.session_id,
                then=lambda reply: self._answered(event, reply["stdout"]),
            )
        except Gone:
            self._leave(self.said[-1])
            if event == "SessionStart" and self.briefs:
                self.briefs = "UserPromptSubmit"  # the unread answer comes again
            raise
        finally:
            if event == "SessionEnd":
                self.session, self.asked, self.briefs = self.session + 1, 0, ""

    def _leave(self, said: Said) -> None:
        """Leave a payload in the spool, as the hook client does after a timeout."""
        frame = {"jsonrpc": "2.0", "method": said.method, "params": said.params, "id": 1}
        spool = self.home / "state" / "fleet" / "spool"
        for directory in (spool.parent, spool):
            directory.mkdir(exist_ok=True, mode=0o700)
        name = f"{time.time_ns() // 1_000_000:013}-{said.params['delivery_id']}"
        part = spool / f"{name}.part"
        part.write_text(json.dumps(frame) + "\n")
        part.rename(spool / f"{name}.json")
        said.spooled = True

    def _answered(self, event: str, stdout: str) -> None:
        if event == self.briefs:
            assert stdout, f"nobody briefed {self.session_id} after its window was compacted"
            self.briefs = ""

    def forget_session(self) -> None:
        """Forget a session that has ended."""
        if self.session:
            name = f"{self.name}-session-{self.chance.randrange(self.session)}"
            self.maybe_gone.add(("session", name))
            self.ask(
                "system.forget",
                {"session_id": name},
                may=("not_found",),
                mission=name,
                then=lambda _: self.end(("session", name)),
            )
