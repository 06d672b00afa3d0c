"""Record one report of a hook, in one transaction: session, agent, happenings, reply due."""

import msgspec
from msgspec import field

from ...harness.report import (
    AnyHappening,
    Compacted,
    Noted,
    PermissionRequested,
    Planned,
    PromptSubmitted,
    Report,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    WindowUsed,
)
from ...protocol.requests.agent import Registration
from ...protocol.requests.hook import DeliveryId
from ...protocol.timestamps import iso
from ...protocol.types import Path
from ..core.context import Context
from ..core.ids import Key
from ..core.tx import Row, Tx
from . import deliveries, handlers, notices, session_lifecycle, sessions
from .sessions import key_of, open_session, rename_session, session_row

FROM_TRANSCRIPT = (Planned, ToolFinished, WindowUsed)
NOTES = frozenset((Noted, PermissionRequested))
IN_PASSING = NOTES | {SessionEnded, WindowUsed}


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What a report led to.

    ``brief`` says that the agent is due a briefing now, ``lines`` what else it is to be told.
    ``known`` says that all of this was recorded before; of a duplicate the agent is told too.
    """

    known: bool = False
    agent_id: str | None = None
    mission_id: str | None = None
    brief: bool = False
    lines: list[str] = field(default_factory=list)


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook told, and what was learned beside it.

    ``earlier`` are things that the transcript tells beside the events, ``cwd`` is the report's
    directory, ``wanted_agent_id`` and ``wanted_mission_id`` come from the session's environment.
    ``happened_ms`` is when the hook ran, in ms since the Unix epoch, for one from the spool.
    """

    delivery_id: DeliveryId
    report: Report
    earlier: tuple[AnyHappening, ...] = ()
    cwd: Path | None = None
    wanted_agent_id: str | None = None
    wanted_mission_id: str | None = None
    happened_ms: int | None = None

    @property
    def from_spool(self) -> bool:
        """Whether the report waited in the spool, so that nobody reads the reply."""
        return self.happened_ms is not None


def record(tx: Tx, ctx: Context, delivery: HookDelivery) -> Recorded:
    """Record a report once, and say what its agent is due; its texts have no secrets any more."""
    report = delivery.report
    if deliveries.is_known(tx, delivery.delivery_id):
        if delivery.from_spool:
            sessions.revoke_briefing(tx, delivery.delivery_id)
        return Recorded(known=True)
    happened = ctx.now_ms if delivery.happened_ms is None else delivery.happened_ms
    duplicate = deliveries.is_duplicate(tx, report, happened)
    deliveries.insert_delivery(
        tx, ctx, delivery.delivery_id, report, happened_ms=happened, from_spool=delivery.from_spool
    )
    if duplicate:
        session = session_row(tx, key_of(report))
        return Recorded(known=True, agent_id=session["agent_id"] if session else None)
    if _says_nothing(tx, report):
        return Recorded()
    return _record(tx, ctx, delivery)


def _says_nothing(tx: Tx, report: Report) -> bool:
    """Whether there is nothing to keep: no happening, or the end of what is not under way.

    Gemini CLI says goodbye three times when its user quits. What a harness says in passing when a
    session is over brings it back no more either.
    """
    kinds = {type(happening) for happening in report.happenings}
    if kinds - IN_PASSING:
        return False
    known = session_row(tx, key_of(report))
    return known["ended_at"] is not None if kinds and known else not kinds & NOTES


def _record(tx: Tx, ctx: Context, delivery: HookDelivery) -> Recorded:
    report, key = delivery.report, key_of(delivery.report)
    if report.previous_session_id and SessionStarted("compact") in report.happenings:
        rename_session(tx, key, report.previous_session_id)
    if report.subagent and session_row(tx, Key(key.harness, key.session_id)) is None:
        _open_parent(tx, ctx, delivery)
    session = open_session(tx, ctx, key, delivery.wanted_agent_id)
    agent_id = str(session["agent_id"])
    missed = session_lifecycle.register_agent(
        tx, ctx, report, agent_id, delivery.cwd, delivery.wanted_mission_id
    )
    hook = handlers.HookContext(
        tx=tx,
        ctx=ctx,
        report=report,
        agent_id=agent_id,
        cwd=delivery.cwd,
        happened_at=None if delivery.happened_ms is None else iso(delivery.happened_ms),
    )
    # How full the window is counts for what the compaction left of it.
    state = _state_by_transcript(hook, session)
    handlers.handle_transcript(
        hook, (each for each in delivery.earlier if isinstance(each, FROM_TRANSCRIPT))
    )
    for happening in report.happenings:
        handlers.handle(hook, happening)
        state = sessions.window_state_after(state, happening)
    mission_id = session_lifecycle.mission_of(tx, agent_id)
    waiting = missed.recovery.candidates if missed else []
    if SessionStarted("resume") in report.happenings and any(
        each.mission_id == mission_id for each in waiting
    ):
        # A session is resumed that was lost or silent: its mission waits for recovery.
        state = "lost"
    sessions.set_window_state(tx, key, state)
    return _reply_due(hook, delivery, state, missed)


def _open_parent(tx: Tx, ctx: Context, delivery: HookDelivery) -> None:
    """Take in a session of which only a subagent was heard so far."""
    above = msgspec.structs.replace(delivery.report, subagent=None, happenings=())
    session = open_session(tx, ctx, key_of(above), delivery.wanted_agent_id)
    agent_id = str(session["agent_id"])
    session_lifecycle.register_agent(
        tx, ctx, above, agent_id, delivery.cwd, delivery.wanted_mission_id
    )


def _state_by_transcript(hook: handlers.HookContext, session: Row) -> str:
    """Return the state of the window, lost when the transcript shows what no event tells."""
    state, mark = str(session["context"]), hook.ctx.facts.transcript_mark
    if mark is None:
        return state
    if sessions.transcript_rewritten(session["transcript_mark"], mark):
        handlers.handle(hook, Compacted())
        state = "lost"
    sessions.set_transcript_mark(hook.tx, key_of(hook.report), session["transcript_mark"], mark)
    return state


def _reply_due(
    hook: handlers.HookContext, delivery: HookDelivery, state: str, missed: Registration | None
) -> Recorded:
    """Say what the reply is to hold, where a reply can hold anything."""
    tx, report, agent_id = hook.tx, hook.report, hook.agent_id
    mission_id = session_lifecycle.mission_of(tx, agent_id)
    if not report.injects or delivery.from_spool:
        return Recorded(agent_id=agent_id, mission_id=mission_id)
    brief = False
    if state == "lost" and mission_id is not None:
        brief = True
        # What was done since the newest checkpoint must not be taken back by the recovery.
        handlers.take_checkpoint(hook, mission_id, f"Before briefing {agent_id}", always=False)
    lines = notices.take_handovers(tx, hook.ctx, agent_id)
    kinds = {type(each) for each in report.happenings}
    if PromptSubmitted in kinds:
        lines += notices.unread_mail(tx, agent_id)
    if not brief and SessionStarted in kinds:
        lines += notices.waiting_mission(tx, hook.ctx, missed, delivery.cwd, agent_id)
    return Recorded(agent_id=agent_id, mission_id=mission_id, brief=brief, lines=lines)
