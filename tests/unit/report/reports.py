"""Reports with any texts in all places that hold words of others."""

from typing import Any

import msgspec

from fleetctl.client.models import decode
from fleetd.protocol.records import Agent, Mission, Note, Recovery
from fleetd.protocol.requests.report import (
    Report,
    ReportAgent,
    ReportCommand,
    ReportCommit,
    ReportError,
    ReportFile,
    ReportOmitted,
    ReportOpen,
    ReportPrompt,
    ReportSortie,
)
from fleetd.protocol.requests.stats import CompactionEffect

AT, LATER = "2026-01-05T12:00:00.000Z", "2026-01-05T13:30:00.000Z"


def agent(name: str, said: str) -> Agent:
    return Agent(
        id=name,
        role="specialist",
        harness=said,
        session_id=None,
        pid=None,
        mission_id="msn-1",
        cwd=None,
        status="waiting",
        registered_at=AT,
        last_seen_at=LATER,
        note=None,
        needs="permission",
    )


def mission(title: str, **more: Any) -> Mission:
    fields: dict[str, Any] = {
        "id": "msn-1a2b3c4d",
        "description": None,
        "status": "in_progress",
        "priority": "medium",
        "project_dir": None,
        "created_at": AT,
        "updated_at": AT,
        "started_at": AT,
        "completed_at": None,
        "last_activity_at": LATER,
        "total_sorties": 3,
        "completed_sorties": 1,
        "progress_percent": 33,
        "metadata": {},
    }
    return Mission(title=title, **fields | more)


def sortie(said: str, status: Any, number: int, **more: Any) -> ReportSortie:
    fields: dict[str, Any] = {
        "author": None,
        "progress": 40,
        "progress_notes": said,
        "blocked_reason": said if status == "blocked" else None,
        "result": None,
        "completed_at": LATER if status in ("completed", "failed") else None,
        "updated_at": LATER,
    }
    return ReportSortie(
        id=f"srt-{number}",
        mission_id="msn-1a2b3c4d",
        title=said,
        status=status,
        assigned_to=said if number % 2 else "alice",
        started_at=AT,
        **fields | more,
    )


def report_struct(said: str, *, of_agent: bool = False) -> Report:
    """Return a report in which every text of others is the same."""
    own = mission(said)
    part = ReportAgent(
        agent_id=said,
        agent=agent(said, said),
        first_at=AT,
        last_at=LATER,
        calls=7,
        failed=1,
        changes=2,
        active_ms=3_000_000,
        last_answer=said,
    )
    return Report(
        generated_at=LATER,
        position=99,
        agent=agent(said, said) if of_agent else None,
        mission=None if of_agent else own,
        missions=[own],
        first_at=AT,
        last_at=LATER,
        elapsed_ms=5_400_000,
        active_ms=3_000_000,
        agents=[part],
        asked=[ReportPrompt(at=AT, agent_id=said, text=said)],
        planned=[
            sortie(said, status, number)
            for number, status in enumerate(("completed", "in_progress", "blocked", "failed"))
        ],
        files=[ReportFile(file=said, changes=2, agents=[said, "bob"], last_at=AT)],
        commands=[
            ReportCommand(
                command=said,
                runs=2,
                passed=1,
                failed=1,
                result="FAIL",
                error=said,
                test=test,
                agents=[said],
                last_at=AT,
            )
            for test in (True, False)
        ],
        commits=[ReportCommit(at=AT, agent_id=said, command=said, result="PASS")],
        decided=[
            Note(
                id="not-1",
                seq=1,
                mission_id="msn-1a2b3c4d",
                kind="decision",
                text=said,
                because=said,
                path=said,
                origin="agent",
                agent_id=said,
                created_at=AT,
                withdrawn_at=AT,
                withdrawn_reason=said,
            )
        ],
        left_open=ReportOpen(next_steps=[said], blockers=[said], conflicts=[said]),
        errors=[ReportError(at=AT, agent_id=said, name=said, message=said)],
        compactions=[
            CompactionEffect(
                seq=5,
                at=AT,
                agent_id=said,
                mission_id=None,
                briefing="given",
                calls=3,
                calls_until_edit=1,
                commands_again=0,
                files_again=0,
                subagents_again=0,
                over=True,
            )
        ],
        recoveries=[
            Recovery(
                id="rec-1",
                mission_id="msn-1a2b3c4d",
                checkpoint_id=said,
                undo_checkpoint_id=None,
                agent_id=said,
                requested_by=said,
                scope="agent",
                state="resumed",
                created_at=AT,
                briefed_at=AT,
                resumed_at=AT,
            )
        ],
        checkpoints=[],
        omitted=ReportOmitted(asked=3, files=1),
    )


def report(said: str, **more: Any) -> Any:
    """Return such a report as commands receive it."""
    return decode(msgspec.json.encode(report_struct(said, **more)))
