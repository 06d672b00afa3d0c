"""Handlers of happenings: what each does to the log, the mission and the agent."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...harness.payload import NAMELESS
from ...harness.report import (
    AnyHappening,
    CommitReverted,
    Compacted,
    Compacting,
    DirectoryChanged,
    Failed,
    Noted,
    Paused,
    PermissionRequested,
    Planned,
    PlanProposed,
    PromptSubmitted,
    QuestionAnswered,
    QuestionAsked,
    Refused,
    Report,
    RunningItem,
    SessionEnded,
    SessionStarted,
    SubagentEnded,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    WindowUsed,
    WorkEnded,
    WorkRuns,
)
from ...protocol.events import HookNoted, Payload, WindowCompacted
from ...protocol.records import Event
from ...protocol.requests.checkpoint import ErrorReport
from ...protocol.requests.event import EventAppend
from ...protocol.types import OPEN_MISSION
from ..attention import conflicts, running, worktrees
from ..checkpoints import on_error
from ..checkpoints.checkpoints import HEAD, Reason, latest_row, take
from ..checkpoints.state import capture
from ..core import event_log
from ..core.context import Context
from ..core.ids import find
from ..core.sql import in_sql
from ..core.tx import Tx
from ..events import streams
from ..liveness import needs, open_calls
from ..liveness.needs import Need
from ..liveness.open_calls import BEGINS_A_CALL, ENDS_A_CALL
from ..liveness.shutdown import ended_with_last_boot
from ..locks import automatic
from ..notes import facts
from ..snapshots import triggers
from . import handoffs, plan_sync, session_lifecycle, sessions
from .sessions import Window, key_of

# A transcript's tail holds some hundred calls at most, with others between them.
REMEMBERED_ENDS = 2_000
# Noted for a notification that a permission is awaited; it does not tell by whom.
REMINDER = "permission_prompt"
OF_A_CALL = (*BEGINS_A_CALL, *ENDS_A_CALL)
# How many events are searched for the beginning of a turn.
TURN_EVENTS = 1_000
# How many events are searched for calls that start subagents.
TASK_EVENTS = 100
# A hook comes at most this long after the end of the call that it asks about.
LATE_MS = 2_000


# An event that an agent reports: its type and its data.
_Entry = tuple[str, dict[str, Any]]


class HookContext(msgspec.Struct, kw_only=True):
    """What the handlers of one report share.

    ``window`` and, for a subagent, ``parent`` (its session's window) are read once: code that
    changes them updates them. ``happened_at`` is when the hook ran, for a report from the spool.
    """

    tx: Tx
    ctx: Context
    report: Report
    window: Window
    parent: Window | None
    cwd: str | None
    happened_at: str | None = None
    auto_locks: bool = False
    """Whether edits take leases for the agent."""
    awaited: tuple[str, str] | None = None
    """The agent that waits for a lock on a file to be edited, and the file that it asked for."""
    met_others: bool = False
    """Whether this hook showed that the agent changed others' work, or another work tree."""

    @property
    def at(self) -> str:
        """Return when the hook ran: a report that waited in the spool comes later."""
        return self.happened_at or self.ctx.now

    @property
    def agent_id(self) -> str:
        """Return the agent that reports."""
        return self.window.agent_id

    @property
    def leading_id(self) -> str:
        """Return the agent of the session, to which a subagent's actions belong, too."""
        return (self.parent or self.window).agent_id

    @property
    def mission_id(self) -> str | None:
        """Return the mission that the agent belongs to, open or not."""
        return self.window.mission_id

    def append(self, *entries: _Entry) -> None:
        """Append events that the agent reports together, without empty values."""
        stripped = [
            (kind, {name: value for name, value in data.items() if value not in (None, (), "")})
            for kind, data in entries
        ]
        if self.happened_at is not None:
            for _, data in stripped:
                data["happened_at"] = self.happened_at
        streams.append_of_agent(self.tx, self.ctx, self.agent_id, self.mission_id, stripped)

    def emit(self, payload: Payload) -> Event:
        """Append an event that is no activity of the agent's."""
        mission_id, agent_id = self.mission_id, self.agent_id
        return event_log.emit(self.tx, self.ctx, payload, mission_id=mission_id, agent_id=agent_id)

    def need(self, need: Need) -> None:
        """Let the agent wait for a person."""
        needs.set_need(self.tx, self.ctx, self.agent_id, need, self.at)

    def mission(self, title: str | None = None) -> str | None:
        """Return the open mission that the agent works in, a new one if need be.

        Returns None if missions are not created automatically. A subagent works where its session
        does. No mission is created for a subagent, because nobody would close it.
        """
        leading = session_lifecycle.ensure_mission(
            self.tx, self.ctx, self.report.harness, self.parent or self.window, self.cwd, title
        )
        mission_id = leading.mission_id if leading.mission_status in OPEN_MISSION else None
        if self.parent is None:
            self.window = leading
            return mission_id
        self.parent = leading
        if mission_id != self.mission_id:
            session_lifecycle.assign_mission(self.tx, [self.agent_id], mission_id)
            status = leading.mission_status if mission_id else None
            self.window = self.window.in_mission(mission_id, status)
        return mission_id

    def end(self, reason: str) -> None:
        """Mark the agent gone: its session, or its task, is over."""
        cut_off = ended_with_last_boot(self.ctx, self.happened_at)
        key = key_of(self.report)
        session_lifecycle.end_session(self.tx, self.ctx, key, reason, vanished=cut_off)
        self.window = sessions.window_of(self.tx, key_of(self.report))


def handle(hook: HookContext, *happenings: AnyHappening) -> None:
    """Handle happenings; the failed tools among them are one boundary of the run."""
    for happening in happenings:
        if handler := _HANDLERS.get(type(happening)):
            handler(hook, happening)
    if hook.window.locks_edits and hook.parent is None and any(map(_is_between_turns, happenings)):
        automatic.give_back(hook.tx, hook.ctx, hook.agent_id)
    if any(isinstance(each, ToolFinished) and each.passed is False for each in happenings):
        triggers.on_error(hook.tx, hook.ctx, hook.agent_id)


def _is_between_turns(happening: AnyHappening) -> bool:
    """Return whether no turn is in progress; not every harness reports an interrupted turn."""
    ends = isinstance(happening, Paused) and not happening.reminder
    return ends or isinstance(happening, Failed | PromptSubmitted)


def _lock_edits(hook: HookContext, files: Sequence[str]) -> None:
    """Lock files for the session's agent: its subagents change them for it."""
    if not hook.auto_locks or not files:
        return
    found = automatic.take(hook.tx, hook.ctx, hook.leading_id, hook.mission_id, files)
    if found is not None and found.wait is not None:
        hook.awaited = found.wait["agent_id"], found.wait["file"]


def handle_transcript(hook: HookContext, reported: Iterable[AnyHappening]) -> None:
    """Handle what a transcript tells; it repeats everything each time.

    An unchanged plan changes nothing. The end of a call is recorded again only if its outcome was
    unknown. Failures since the last time become known together: they are one boundary of the run.
    """
    happenings = list(reported)
    ended = any(isinstance(each, ToolFinished) for each in happenings)
    known = _outcomes_known(hook) if ended else frozenset[str]()
    new = (
        each
        for each in happenings
        if not isinstance(each, ToolFinished)
        or (each.passed is not None and each.call_id not in known)
    )
    handle(hook, *new)


def _outcomes_known(hook: HookContext) -> frozenset[str]:
    """Return the calls whose outcome is known; that a command ended is not enough."""
    rows = hook.tx.all(
        "SELECT type, data_json FROM events WHERE agent_id = :agent"
        f" AND type IN {in_sql(ENDS_A_CALL)} ORDER BY seq DESC LIMIT :most",
        agent=hook.agent_id,
        most=REMEMBERED_ENDS,
    )
    return frozenset(
        call_id
        for row in rows
        if isinstance(call_id := (data := event_log.data_of(row)).get("call_id"), str)
        and (row["type"] != "command_finished" or data.get("result"))
    )


def _started(hook: HookContext, event: SessionStarted) -> None:
    if event.source in ("resume", "compact"):
        hook.window = session_lifecycle.resume_mission(hook.tx, hook.ctx, hook.window)
    if event.source != "compact":
        if _unapproved_plan(hook) is not None:  # nobody is asked any more
            needs.end_need(hook.tx, hook.ctx, hook.agent_id)
        session_lifecycle.set_waiting(hook.tx, hook.agent_id)
    if event.source != "resume":
        sessions.set_window_usage(hook.tx, key_of(hook.report), None)


def _prompted(hook: HookContext, event: PromptSubmitted) -> None:
    prompt = None
    if hook.ctx.config.keep_prompts:
        prompt = handoffs.in_short(hook.tx, hook.agent_id, event.prompt)
    hook.mission(prompt)
    _note_unapproved_plan(hook)
    hook.append(("prompt_submitted", {"prompt": prompt}))


def _note_unapproved_plan(hook: HookContext) -> None:
    plan = _unapproved_plan(hook)
    if plan is not None and (mission_id := hook.mission()) is not None:
        facts.record(hook.tx, hook.ctx, mission_id, hook.agent_id, facts.plan_refused(plan, None))


def _unapproved_plan(hook: HookContext) -> str | None:
    """Return the plan that awaits its approval when the user does something else instead.

    Anything that the agent does after an approval ends that need first. So does a resumed session.
    """
    if hook.window.agent is None or hook.window.agent["needs"] != "plan_approval":
        return None
    found: str | None = hook.tx.value(
        "SELECT needs_text FROM agents WHERE id = :id AND needs = 'plan_approval'",
        id=hook.agent_id,
    )
    return found


def _refused(hook: HookContext, refusal: Refused) -> None:
    fact_text = facts.plan_refused if refusal.what == "plan" else facts.permission_denied
    if (mission_id := hook.mission()) is not None:
        text = fact_text(refusal.about, refusal.reason)
        facts.record(
            hook.tx, hook.ctx, mission_id, hook.agent_id, text, again=refusal.maybe_repeated
        )


def _commit_reverted(hook: HookContext, event: CommitReverted) -> None:
    mission_id = hook.mission()
    if mission_id is None:
        return
    text = facts.commit_reverted(event.subject)
    if event.again:
        facts.end(hook.tx, hook.ctx, mission_id, text, "the commit was applied again")
    else:
        facts.record(hook.tx, hook.ctx, mission_id, hook.agent_id, text)


def _tool_started(hook: HookContext, call: ToolStarted) -> None:
    hook.mission()
    kind = "command_started" if call.command else "tool_started"
    data = {"tool": call.tool, "command": call.command, "call_id": call.call_id}
    hook.append((kind, data | {"task": call.task}))
    if paths := [e.path for file in call.edits if (e := hook.ctx.facts.edited.get(file))]:
        open_calls.note_files(hook.tx, hook.agent_id, call.call_id, paths)
    _lock_edits(hook, call.edits)
    if hook.parent is not None and hook.report.subagent is not None:
        _still_runs(hook, hook.report.subagent)


def _tool_finished(hook: HookContext, call: ToolFinished) -> None:
    hook.mission()
    hook.append(*_events_of_call(call))
    if call.edited:
        met = conflicts.note_edits(hook.tx, hook.ctx, hook.leading_id, call.edited, hook.at)
        outside = worktrees.note_outside(
            hook.tx, hook.ctx, hook.leading_id, hook.window.trees, call.edited
        )
        hook.met_others |= met or outside
        _lock_edits(hook, call.edited)
    _forget_reminder(hook)


def _forget_reminder(hook: HookContext) -> None:
    """Clear a permission that only a reminder reported, when a subagent continues.

    The reminder does not tell who asked. The session's own agent would keep the need for long.
    """
    above = hook.parent.agent if hook.parent is not None else None
    if above is None or above["needs"] != "permission":
        return
    noted = hook.tx.value(
        "SELECT data_json FROM events WHERE agent_id = :agent AND type = 'hook_noted'"
        " ORDER BY seq DESC LIMIT 1",
        agent=above["id"],
    )
    if noted is not None and event_log.data_of({"data_json": noted}).get("what") == REMINDER:
        needs.end_need(hook.tx, hook.ctx, above["id"])


def _events_of_call(call: ToolFinished) -> Iterator[_Entry]:
    """Yield the events of a finished tool call."""
    call_id, duration_ms = call.call_id, call.duration_ms
    for file in call.edited:
        yield "file_modified", {"file": file, "tool": call.tool}
    if call.command:
        yield (
            "command_finished",
            {
                "command": call.command,
                "result": {True: "PASS", False: "FAIL", None: None}[call.passed],
                "error": call.error,
                "call_id": call_id,
                "duration_ms": duration_ms,
                "background": call.background or None,
            },
        )
    if call.passed is False:
        yield "tool_failed", {"name": call.tool, "error": call.error, "call_id": call_id}
    elif not call.command:
        data = {"tool": call.tool, "call_id": call_id, "duration_ms": duration_ms}
        yield "tool_finished", data | {"file": call.read}


def _planned(hook: HookContext, planned: Planned) -> None:
    mission_id = hook.mission()
    if mission_id is not None:
        owner = (hook.parent if planned.shared else None) or hook.window
        plan_sync.sync_plan(hook.tx, hook.ctx, mission_id, owner.agent_id, planned)


def _compacting(hook: HookContext, event: Compacting) -> None:
    mission_id = hook.mission()
    if mission_id is not None:
        details = f"Before the {event.trigger} compaction of {hook.agent_id}"
        take_checkpoint(hook, mission_id, details, always=event.certain)
    if event.certain:
        triggers.on_compaction(hook.tx, hook.ctx, hook.agent_id, event.trigger)


def take_checkpoint(hook: HookContext, mission_id: str, details: str, *, always: bool) -> None:
    """Take a checkpoint; one that equals the newest is taken only with ``always``."""
    tx, ctx = hook.tx, hook.ctx
    state = capture(tx, ctx, find(tx, "mission", mission_id))
    newest = latest_row(tx, mission_id, columns=HEAD)
    if (
        always
        or newest is None
        or newest["state_digest"] != state.digest()
        or state.was_noted_since(newest["timestamp"])
    ):
        reason = Reason(trigger="compaction", details=details, created_by=hook.agent_id)
        take(tx, ctx, mission_id, reason, state)


def _compacted(hook: HookContext, event: Compacted) -> None:
    # A summary repeats what the user said, mostly word for word.
    kept = hook.ctx.config.keep_prompts
    hook.emit(WindowCompacted(summary=event.summary if kept else None))
    sessions.set_window_usage(hook.tx, key_of(hook.report), None)


def _window_used(hook: HookContext, usage: WindowUsed) -> None:
    # No event: there is a count after every answer, and only the newest matters.
    sessions.set_window_usage(hook.tx, key_of(hook.report), usage)


def _directory_changed(hook: HookContext, _event: DirectoryChanged) -> None:
    # The mission stays: an agent's work does not change with its directory.
    if hook.cwd is not None:
        session_lifecycle.set_directory(hook.tx, hook.agent_id, hook.cwd)


def _answered(message: str | None) -> list[_Entry]:
    return [("agent_answered", {"message": message})] if message else []


def _paused(hook: HookContext, event: Paused) -> None:
    """End the turn, unless it is known to be over.

    When a reminder comes, the end is known, unless the user interrupted the turn. A reminder comes
    while nothing is asked. The end of a turn that an error interrupted is known, too.
    """
    tx = hook.tx
    if event.reminder and not session_lifecycle.may_have_stopped(tx, hook.agent_id):
        _pause(hook, session_lifecycle.asking_subagents(tx, hook.report))
        hook.emit(HookNoted(what="idle_prompt", message=event.last_message))
        return
    if event.reminder:
        _note_unapproved_plan(hook)
    before = hook.window.agent
    known_broken = before is not None and before["needs"] in needs.BROKEN_OFF
    if known_broken and needs.is_broken_off(tx, hook.agent_id):
        hook.emit(HookNoted(what="turn_ended", message=event.last_message))
        _pause(hook, session_lifecycle.active_subagents(tx, hook.report))
        return
    hook.append(*_answered(event.last_message), ("agent_paused", {}))
    _pause(hook, session_lifecycle.active_subagents(tx, hook.report))
    if hook.parent is None:
        in_background = running.runs_any(tx, hook.agent_id) and _goes_on(hook, event)
        hook.need(Need("background" if in_background else "finished", event.last_message))


def _goes_on(hook: HookContext, event: Paused) -> bool:
    """Return whether anything still runs after a turn.

    Without a list of what runs, a subagent without a reported end counts as over: with the turn
    that its user interrupted, else if it reported nothing in the whole turn.
    """
    listed = any(isinstance(each, WorkRuns) and each.whole for each in hook.report.happenings)
    began = None if event.interrupted else _turn_began(hook)
    if listed or event.reminder or (began is None and not event.interrupted):
        return True
    running.end_subagents(hook.tx, hook.agent_id, began, hook.at)
    return running.runs_any(hook.tx, hook.agent_id)


def _turn_began(hook: HookContext) -> str | None:
    """Return when the user last spoke to the agent, None if that was too long ago."""
    row = hook.tx.one(
        "SELECT timestamp, data_json FROM events WHERE agent_id = :agent AND seq > :floor"
        " AND type = 'prompt_submitted' ORDER BY seq DESC LIMIT 1",
        agent=hook.agent_id,
        floor=event_log.nth_newest_position(hook.tx, hook.agent_id, TURN_EVENTS),
    )
    if row is None:
        return None
    return event_log.happened_at(row, event_log.data_of(row))


def _pause(hook: HookContext, agents: Iterable[str]) -> None:
    for agent_id in agents:
        streams.append(hook.tx, hook.ctx, EventAppend("agent_paused", agent_id=agent_id))


def _subagent_ended(hook: HookContext, event: SubagentEnded) -> None:
    if hook.report.subagent is not None:
        _work_ended(hook, WorkEnded(hook.report.subagent))
    hook.append(*_answered(event.last_message))
    hook.end("its task is done")


def _failed(hook: HookContext, failure: Failed) -> None:
    triggers.on_run_failed(hook.tx, hook.ctx, hook.agent_id, failure.message)
    error = ErrorReport(
        agent_id=hook.agent_id, kind="api_error", name="TurnFailed", message=failure.message
    )
    on_error.note(hook.tx, hook.ctx, error)
    # The turn is over, even without an answer.
    hook.append(("agent_paused", {}))
    text = failure.shown_message or (None if failure.message == NAMELESS else failure.message)
    hook.need(Need("limit" if failure.limited else "failed", text, failure.reset_at))


def _noted(hook: HookContext, event: Noted) -> None:
    hook.emit(HookNoted(what=event.what, message=event.message))


def _permission_requested(hook: HookContext, event: PermissionRequested) -> None:
    """Make the agent wait; no work is done, so this is no activity.

    A reminder that comes too late, or that is about a known request, adds no other need.
    """
    what = REMINDER if event.reminder else "permission_request"
    late = event.beside and _is_answered(hook)
    noted = hook.emit(HookNoted(what=what, message=event.message))
    if late:
        return
    if not event.certain:
        needs.ask(hook.tx, hook.ctx, hook.agent_id, event.message, hook.at, noted.seq)
    elif not event.reminder or _is_of_own_agent(hook):
        hook.need(Need("permission", event.message))


def _is_of_own_agent(hook: HookContext) -> bool:
    """Return whether a reminder can only be the own agent's; confirm another's request if any."""
    tx, report = hook.tx, hook.report
    if needs.confirm_ask_of(tx, hook.ctx, report.harness, report.session_id):
        return False
    return session_lifecycle.may_await_permission(tx, report, hook.agent_id)


def _question_asked(hook: HookContext, event: QuestionAsked) -> None:
    _asked(hook, event, Need("question", event.question), "question_prompt")


def _plan_proposed(hook: HookContext, event: PlanProposed) -> None:
    _asked(hook, event, Need("plan_approval", event.plan), "plan_prompt")


def _asked(hook: HookContext, event: QuestionAsked | PlanProposed, need: Need, noted: str) -> None:
    """Make the agent wait for an answer; a reminder that comes too late is only noted."""
    if event.reminder and not session_lifecycle.may_ask_by_reminder(hook.tx, hook.agent_id):
        hook.emit(HookNoted(what=noted, message=need.text))
    elif not (event.beside and _is_answered(hook)):
        hook.need(need)


def _question_answered(hook: HookContext, _event: QuestionAnswered) -> None:
    row = hook.window.agent
    if row is not None and row["needs"] == "question":
        needs.end_need(hook.tx, hook.ctx, hook.agent_id)


def _is_answered(hook: HookContext) -> bool:
    """Return whether the call that a hook asks about is over: its end was reported before.

    The beginning of a call is always reported before the question, so the newest event of a call
    is no end while a question is open. A harness that reports no beginnings is believed.
    """
    newest = hook.tx.all(
        "SELECT type, timestamp, data_json FROM events WHERE agent_id = :agent"
        f" AND type IN {in_sql(OF_A_CALL)} ORDER BY seq DESC LIMIT 3",
        agent=hook.agent_id,
    )
    if not newest or newest[0]["type"] not in ENDS_A_CALL:
        return False
    if newest[0]["timestamp"] < hook.ctx.at(-LATE_MS):
        return False
    ended, *before = (event_log.data_of(row).get("call_id") for row in newest)
    begun = zip(newest[1:], before, strict=True)
    return any(call_id == ended for row, call_id in begun if row["type"] in BEGINS_A_CALL)


def _subagent_started(hook: HookContext, event: SubagentStarted) -> None:
    if hook.parent is not None and hook.report.subagent is not None:
        words = _task_of_subagent(hook) or event.kind
        _work_runs(hook, WorkRuns((RunningItem(hook.report.subagent, "subagent", words),)))


def _task_of_subagent(hook: HookContext) -> str | None:
    """Return the task of a subagent that begins, from its session's calls that start one.

    Neither names the other: it is the first open call whose task no subagent since then has.
    """
    tx, agent_id = hook.tx, hook.leading_id
    begun = tx.all(
        "SELECT timestamp, data_json FROM events WHERE agent_id = :agent AND seq > :floor"
        " AND type = 'tool_started' ORDER BY seq",
        agent=agent_id,
        floor=event_log.nth_newest_position(tx, agent_id, TASK_EVENTS),
    )
    calls = [(row, event_log.data_of(row)) for row in begun]
    calls = [(row, data) for row, data in calls if "task" in data]
    if not calls:
        return None
    rows = tx.all("SELECT call_id FROM tool_calls WHERE agent_id = :agent", agent=agent_id)
    still = {row["call_id"] for row in rows}
    taken = running.subagent_tasks(tx, agent_id)
    for row, data in calls:
        task, began = str(data["task"]), event_log.happened_at(row, data)
        if data.get("call_id") in still and taken.get(needs.one_line(task), "") < began:
            return task
    return None


def _work_runs(hook: HookContext, event: WorkRuns) -> None:
    """Record what runs, for the session's own agent: a subagent's shells count as its own."""
    running.see(hook.tx, hook.ctx, hook.leading_id, event.items, hook.at)
    still = {item.id for item in event.items}
    running.end_others(hook.tx, hook.leading_id, event.whole, still, hook.at)
    _settle(hook)


def _work_ended(hook: HookContext, event: WorkEnded) -> None:
    running.end(hook.tx, hook.leading_id, event.id, hook.at)
    _settle(hook)


def _still_runs(hook: HookContext, subagent: str) -> None:
    """Record that a subagent is at work, even if it was thought to be over."""
    if running.reopen(hook.tx, hook.leading_id, subagent, hook.at):
        _settle(hook)


def _settle(hook: HookContext) -> None:
    """Record whether work continues without the session's own agent, should its turn be over."""
    works_on = running.runs_any(hook.tx, hook.leading_id)
    needs.settle(hook.tx, hook.ctx, hook.leading_id, hook.at, works_on=works_on)


def _session_ended(hook: HookContext, event: SessionEnded) -> None:
    hook.end(event.reason or "the session ended")


_HANDLERS: dict[type, Callable[[HookContext, Any], None]] = {
    SessionStarted: _started,
    PromptSubmitted: _prompted,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    Planned: _planned,
    Compacting: _compacting,
    Compacted: _compacted,
    WindowUsed: _window_used,
    DirectoryChanged: _directory_changed,
    Paused: _paused,
    SubagentStarted: _subagent_started,
    SubagentEnded: _subagent_ended,
    Failed: _failed,
    Noted: _noted,
    PermissionRequested: _permission_requested,
    QuestionAsked: _question_asked,
    QuestionAnswered: _question_answered,
    PlanProposed: _plan_proposed,
    Refused: _refused,
    CommitReverted: _commit_reverted,
    WorkRuns: _work_runs,
    WorkEnded: _work_ended,
    SessionEnded: _session_ended,
}
