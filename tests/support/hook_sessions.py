"""Sessions whose reports a test writes by hand, in the form that the adapters produce."""

import os
from typing import Any

from fleetd.domain.core.context import Caller, Facts, TranscriptMark
from fleetd.domain.sessions.record import HookDelivery, Recorded
from fleetd.domain.sessions.sessions import key_of, set_briefed
from fleetd.engine.hooks.deliver import record_clean, without_secrets
from fleetd.harness.report import (
    AnyHappening,
    Compacted,
    Compacting,
    PlanItem,
    Planned,
    PromptSubmitted,
    Report,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from fleetd.protocol.events import WindowBriefed
from fleetd.protocol.records import Mission
from fleetd.protocol.requests.mission import MissionGet
from fleetd.protocol.requests.recovery import RecoveryRestore
from tests.support.fleet import SECOND, Fleet

PROJECT = "/home/user/project"
SOMEBODY = Caller(kind="client", uid=os.getuid())


class Window:
    """One session that a test reports by hand, in the form that the adapters produce."""

    def __init__(self, fleet: Fleet, session_id: str = "12f459b8-ddba", **report: Any) -> None:
        self.fleet = fleet
        self.report = {
            "harness": "claude",
            "event": "Test",
            "cwd": PROJECT,
            "injects": True,
        } | report
        self.session_id = session_id
        self.told = 0
        self.mark: TranscriptMark | None = None
        self.process: tuple[int | None, str | None] = (None, None)
        self.env: dict[str, str | None] = {}

    async def tell(self, *happenings: AnyHappening, **request: Any) -> Recorded:
        self.told += 1
        report = Report(session_id=self.session_id, happenings=happenings, **self.report)
        kept = {"delivery_id": f"{self.session_id}-{self.report.get('subagent')}-{self.told:08}"}
        delivery = HookDelivery(
            report=report, **(kept | {"cwd": self.report["cwd"]} | self.env | request)
        )
        pid, started = self.process
        facts = Facts(
            project_root=PROJECT,
            transcript_mark=self.mark,
            agent_pid=pid,
            pid_started=started,
        )
        clean = await without_secrets(self.fleet.engine, delivery, size=0)
        return await record_clean(self.fleet.engine, clean, SOMEBODY, facts)

    async def briefed(self, recorded: Recorded) -> str:
        """Do what the operation does when a briefing is due."""
        report = Report(session_id=self.session_id, happenings=(), **self.report)
        restored = await self.fleet.do(
            RecoveryRestore(
                mission_id=recorded.mission_id,
                agent_id=recorded.agent_id,
                requested_by=recorded.agent_id or "",
                scope="agent",
            )
        )
        delivery = f"{self.session_id}-{self.report.get('subagent')}-{self.told:08}"
        told = WindowBriefed(characters=len(restored.prompt)) if recorded.compacted else None
        await self.fleet.engine.write(set_briefed, key_of(report), delivery, told)
        return restored.prompt


class WorkingWindow(Window):
    """A session that works: its calls have names, as most harnesses give them."""

    calls = 0

    def name(self) -> str | None:
        self.calls += 1
        return f"call-{self.calls}"

    async def call(self, tool: str, *, result: AnyHappening | None = None, **asked: Any) -> None:
        """Begin a call and end it, two seconds later."""
        call_id = self.name()
        await self.tell(ToolStarted(tool, call_id=call_id, **asked))
        self.fleet.clock.pass_by(2 * SECOND)
        command = asked.get("command")
        await self.tell(result or ToolFinished(tool, call_id=call_id, command=command, passed=True))

    async def run(self, *commands: str) -> None:
        for command in commands:
            await self.call("Bash", command=command)

    async def read(self, *files: str) -> None:
        for file in files:
            name = f"call-{self.calls + 1}"
            ended = ToolFinished("Read", call_id=name, passed=True, read=file)
            await self.call("Read", result=ended)

    async def edit(self, file: str = f"{PROJECT}/plan.md") -> None:
        name = f"call-{self.calls + 1}"
        ended = ToolFinished("Edit", call_id=name, edited=(file,), passed=True)
        await self.call("Edit", result=ended, edits=(file,))

    async def delegate(self, task: str) -> None:
        await self.call("Task", task=task)

    async def compact(self) -> None:
        """Compact as Claude Code does: it reports the new window before the compaction."""
        await self.tell(Compacting())
        recorded = await self.tell(SessionStarted("compact"))
        if recorded.brief:
            await self.briefed(recorded)
        await self.tell(Compacted())


def planned(*items: str, whole: bool = True) -> Planned:
    """Read items such as ``Read``, ``> Write`` and ``x Test``."""
    words = {">": "in_progress", "x": "completed", "-": "dropped"}
    return Planned(
        tuple(
            PlanItem(told.lstrip(">x- "), words.get(told[0], "pending"))  # type: ignore[arg-type]
            for told in items
        ),
        whole,
    )


async def working(fleet: Fleet, *items: str, **window: Any) -> tuple[Window, Mission]:
    """Return a session that received a prompt and made a plan."""
    session = Window(fleet, **window)
    recorded = await session.tell(PromptSubmitted("Add a login"))
    await session.tell(planned(*items))
    assert recorded.mission_id is not None
    return session, await fleet.do(MissionGet(recorded.mission_id))
