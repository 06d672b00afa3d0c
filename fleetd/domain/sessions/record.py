"""Hook recording: one report in one transaction, with session, agent, happenings and reply."""

import msgspec
from msgspec import field

from ...harness.report import (
    AnyHappening,
    Compacted,
    DirectoryChanged,
    Noted,
    PermissionRequested,
    Planned,
    PlanProposed,
    PromptSubmitted,
    QuestionAsked,
    Refused,
    Report,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    WindowUsed,
)
from ...protocol.events import BriefingMissed
from ...protocol.requests.agent import Registration
from ...protocol.requests.hook import DeliveryId
from ...protocol.timestamps import iso
from ...protocol.types import Path
from ..attention import conflicts, worktrees
from ..core.context import Checkout, Context
from ..core.observers import handoff_due
from ..core.tx import Row, Tx
from . import deliveries, handlers, handoffs, notices, session_lifecycle, sessions
from .sessions import Seen, Window, find_window, key_of, open_window, rename_session

FROM_TRANSCRIPT = (Planned, ToolFinished, Refused, WindowUsed)
NOTES = frozenset((Noted, PermissionRequested))
IN_PASSING = NOTES | {SessionEnded, WindowUsed, DirectoryChanged}
_COMPACTED = SessionStarted("compact")
# How a CLI calls the beginning of a session where it was started, or its reopening there.
_AT_START = ("startup", "resume")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of recording a report.

    ``brief`` means that the agent is due a briefing now, ``compacted`` that its window was
    compacted; ``lines`` are other texts for it. ``awaited`` is the agent that waits for a lock on
    what was about to be edited, and the file that it asked for. ``known`` means that all of this
    was recorded before; for a duplicate the agent is given too. ``repeated`` means that this very
    delivery came before.
    """

    known: bool = False
    repeated: bool = False
    agent_id: str | None = None
    mission_id: str | None = None
    brief: bool = False
    compacted: bool = False
    lines: list[str] = field(default_factory=list)
    awaited: tuple[str, str] | None = None


class HookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's report, and what was learned in addition.

    ``earlier`` are happenings from the transcript, ``cwd`` is the report's directory, and
    ``checkout`` is what is checked out there as the hook runs. ``wanted_agent_id`` and
    ``wanted_mission_id`` come from the session's environment. ``happened_ms`` is when the hook ran,
    in ms since the Unix epoch, for a report from the spool. ``auto_locks`` means that edits take
    leases.
    """

    delivery_id: DeliveryId
    report: Report
    earlier: tuple[AnyHappening, ...] = ()
    cwd: Path | None = None
    checkout: Checkout | None = None
    wanted_agent_id: str | None = None
    wanted_mission_id: str | None = None
    happened_ms: int | None = None
    auto_locks: bool = False

    @property
    def from_spool(self) -> bool:
        """Return whether the report waited in the spool, so that nobody reads the reply."""
        return self.happened_ms is not None


def record(tx: Tx, ctx: Context, delivery: HookDelivery) -> Recorded:
    """Record a report once, and return what its agent is due; its texts hold no secrets."""
    report, mark = delivery.report, deliveries.fingerprint(delivery.report)
    happened = ctx.now_ms if delivery.happened_ms is None else delivery.happened_ms
    known, equal = deliveries.find_earlier(tx, delivery.delivery_id, mark, happened)
    if known:
        if delivery.from_spool:
            sessions.revoke_briefing(tx, ctx, delivery.delivery_id)
        return Recorded(known=True, repeated=True)
    duplicate = deliveries.is_duplicate(tx, report, equal)
    deliveries.insert_delivery(
        tx,
        ctx,
        delivery.delivery_id,
        report,
        mark=mark,
        happened_ms=happened,
        from_spool=delivery.from_spool,
    )
    window = find_window(tx, key_of(report))
    if duplicate:
        return Recorded(known=True, agent_id=window.agent_id if window else None)
    if _nothing_to_store(report, window):
        return Recorded()
    return _record(tx, ctx, delivery, window)


def _nothing_to_store(report: Report, window: Window | None) -> bool:
    """Return whether there is nothing to store: no happening, or the end of what is not open.

    Gemini CLI reports the end three times when its user quits. What a harness reports in passing
    after a session's end does not bring the session back either.
    """
    kinds = {
        Noted if isinstance(each, QuestionAsked | PlanProposed) and each.reminder else type(each)
        for each in report.happenings
    }
    if kinds - IN_PASSING:
        return False
    return window.ended if kinds and window else not kinds & NOTES


def _record(tx: Tx, ctx: Context, delivery: HookDelivery, known: Window | None) -> Recorded:
    report, key = delivery.report, key_of(delivery.report)
    if known is None and report.previous_session_id and _COMPACTED in report.happenings:
        rename_session(tx, key, report.previous_session_id)
        known = find_window(tx, key)
    parent = _parent(tx, ctx, delivery) if report.subagent else None
    new = known is None and parent is None
    handoff = handoffs.awaited(tx, delivery.wanted_agent_id) if new else None
    window, missed = _opened(tx, ctx, delivery, report, known, parent)
    handed = handoff is not None and _completed(tx, ctx, delivery, window, handoff)
    if handoff is not None:  # the agent's notices tell what became of it
        window = sessions.window_of(tx, key)
    hook = handlers.HookContext(
        tx=tx,
        ctx=ctx,
        report=report,
        window=window,
        parent=parent,
        cwd=delivery.cwd,
        auto_locks=delivery.auto_locks and not delivery.from_spool,
        happened_at=None if delivery.happened_ms is None else iso(delivery.happened_ms),
    )
    # The state comes before the transcript, whose window usage is that after a compaction.
    state = _state_by_transcript(hook)
    handlers.handle_transcript(
        hook, (each for each in delivery.earlier if isinstance(each, FROM_TRANSCRIPT))
    )
    for happening in report.happenings:
        handlers.handle(hook, happening)
        state = sessions.window_state_after(state, happening)
    if known is None or conflicts.period(known.last_event_at) != conflicts.period(ctx.now):
        conflicts.prune_edits(tx, ctx, hook.leading_id)
    compacted = state == "lost"
    waiting = missed.recovery.candidates if missed else []
    if (
        not handed
        and SessionStarted("resume") in report.happenings
        and any(each.mission_id == hook.mission_id for each in waiting)
    ):
        # A lost or silent session is resumed: its mission waits for recovery.
        state = "lost"
    if state != window.state:
        sessions.set_window_state(tx, key, state)
    return _reply_due(hook, delivery, state, None if handed else missed, compacted=compacted)


def _completed(tx: Tx, ctx: Context, delivery: HookDelivery, window: Window, handoff: Row) -> bool:
    """Complete the hand-off that awaited the new session; return whether it was completed.

    A session that begins too late is an ordinary session.
    """
    if window.agent_id != handoff["successor_id"]:
        return False
    happened = delivery.happened_ms
    if (ctx.now if happened is None else iso(happened)) > handoff["expires_at"]:
        late = "the session began too late"
        handoffs.fail(tx, ctx, handoff, "expired", late)
        return False
    handoff_due(tx, ctx, handoff)
    return True


def _opened(
    tx: Tx,
    ctx: Context,
    delivery: HookDelivery,
    report: Report,
    known: Window | None,
    parent: Window | None,
) -> tuple[Window, Registration | None]:
    """Open a window and register its agent; return what the agent missed if that was new."""
    begins = any(
        isinstance(each, SessionStarted) and each.source in _AT_START for each in report.happenings
    )
    seen = Seen(delivery.cwd, delivery.checkout, begins)
    window = open_window(tx, ctx, key_of(report), delivery.wanted_agent_id, known, seen)
    missed = session_lifecycle.register_agent(
        tx, ctx, report, window, parent, delivery.cwd, delivery.wanted_mission_id
    )
    return (sessions.window_of(tx, key_of(report)) if missed else window), missed


def _parent(tx: Tx, ctx: Context, delivery: HookDelivery) -> Window:
    """Return the window of a subagent's session; an unknown session is opened."""
    above = msgspec.structs.replace(delivery.report, subagent=None, happenings=())
    known = find_window(tx, key_of(above))
    if known is not None and known.agent is not None:
        return known
    return _opened(tx, ctx, delivery, above, known, None)[0]


def _state_by_transcript(hook: handlers.HookContext) -> str:
    """Return the state of the window: lost if the transcript shows what no event reported."""
    state, before = hook.window.state, hook.window.transcript_mark
    mark = hook.ctx.facts.transcript_mark
    if mark is None:
        return state
    if sessions.transcript_rewritten(before, mark):
        handlers.handle(hook, Compacted())
        state = "lost"
    sessions.set_transcript_mark(hook.tx, key_of(hook.report), before, mark)
    return state


def _reply_due(
    hook: handlers.HookContext,
    delivery: HookDelivery,
    state: str,
    missed: Registration | None,
    *,
    compacted: bool,
) -> Recorded:
    """Return what the reply is to hold, if a reply can hold anything."""
    tx, report, agent_id, mission_id = hook.tx, hook.report, hook.agent_id, hook.mission_id
    if not report.injects or delivery.from_spool:
        return Recorded(agent_id=agent_id, mission_id=mission_id, awaited=hook.awaited)
    due = brief = False
    if state == "lost" and mission_id is not None:
        due, wanted = True, sessions.has_briefings(tx, mission_id)
        known = sessions.knows_work(tx, mission_id, agent_id)
        brief = wanted and known
        if not wanted and compacted:
            hook.emit(BriefingMissed(reason="off"))
    if brief:
        # The recovery must not take back what was done since the newest checkpoint.
        handlers.take_checkpoint(hook, str(mission_id), f"Before briefing {agent_id}", always=False)
    elif due:
        # The window's state is as if its agent had read a briefing.
        sessions.set_window_state(tx, key_of(report), "briefed")
    lines = notices.take_handovers(tx, hook.ctx, agent_id) if hook.window.has_handovers else []
    # Not for a subagent: nobody else reads what it reads.
    if hook.parent is None and (hook.met_others or hook.window.met_others):
        lines += conflicts.take_notice(tx, hook.ctx, agent_id)
        lines += worktrees.take_notice(tx, agent_id)
    kinds = {type(each) for each in report.happenings}
    if PromptSubmitted in kinds:
        lines += notices.unread_mail(tx, agent_id)
    if not due and SessionStarted in kinds:
        lines += notices.waiting_mission(tx, hook.ctx, missed, delivery.cwd, agent_id)
    return Recorded(
        agent_id=agent_id,
        mission_id=mission_id,
        brief=brief,
        compacted=compacted,
        lines=lines,
        awaited=hook.awaited,
    )
