"""Sessions: which session a report belongs to, its agent's id, and its context window.

A subagent is a separate agent inside its parent's session. The states of a window in
``sessions.context`` are ``whole``, ``compacting`` (announced), ``lost`` (compacted, not briefed)
and ``briefed``, which work makes ``whole`` again. If the mission has no briefings, a window becomes
``briefed`` when it would have been.
"""

import re
from itertools import chain, count

import msgspec

from ...harness.report import (
    AnyHappening,
    Compacted,
    Compacting,
    Paused,
    PromptSubmitted,
    Report,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    WindowUsed,
)
from ...protocol.events import BriefingMissed, Payload, WindowBriefed
from ...protocol.types import AGENT_ID
from ..core.context import Checkout, Context, TranscriptMark
from ..core.event_log import emit
from ..core.ids import WHERE_KEY, Key
from ..core.sql import LIVING, in_sql
from ..core.tx import LogLine, Row, Tx
from ..liveness.process_identity import agent_without_session
from .notices import HAS_HANDOVERS

_AGENT_ID = re.compile(AGENT_ID)
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")
_KIND = re.compile(r"^[a-z]{2,8}_(?=.)")
SHOWN = 8
LONGEST_ID = 64


def key_of(report: Report) -> Key:
    """Return the key of the window that a report is about."""
    return Key(report.harness, report.session_id, report.subagent or "")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window as it was read, with its agent and that agent's mission: all that a hook is about.

    ``agent`` is None until the agent is registered.
    """

    agent_id: str
    state: str
    transcript_mark: str | None
    last_event_at: str
    ended: bool
    agent: Row | None
    mission_status: str | None
    trees: tuple[str | None, str | None] = (None, None)
    """The roots of the work trees in which the session began, and from which it last reported."""

    @property
    def met_others(self) -> bool:
        """Return whether the agent has not read yet that it changed others' work, or elsewhere."""
        return bool(self.agent and self.agent["met_others"])

    @property
    def has_handovers(self) -> bool:
        """Return whether the agent has not read yet that work changed hands."""
        return bool(self.agent and self.agent["has_handovers"])

    @property
    def locks_edits(self) -> bool:
        """Return whether the agent holds locks that its edits took."""
        return bool(self.agent and self.agent["locks_edits"])

    @property
    def mission_id(self) -> str | None:
        """Return the mission that the agent belongs to."""
        return self.agent["mission_id"] if self.agent else None

    def in_mission(self, mission_id: str | None, status: str | None) -> "Window":
        """Return the window with its agent in a mission of this status."""
        agent = self.agent and {**self.agent, "mission_id": mission_id}
        return msgspec.structs.replace(self, agent=agent, mission_status=status)


# What hooks read of an agent; not when it was last seen, which each hook changes.
_AGENT = (
    "a.id, a.role, a.session_id, a.pid, a.pid_started, a.machine, a.mission_id, a.status,"
    " a.succeeded_by, a.needs"
)


def find_window(tx: Tx, key: Key) -> Window | None:
    """Return a window, None for an unknown one."""
    row = tx.one(
        "SELECT s.agent_id AS window_agent, s.context, s.transcript_mark, s.last_event_at,"
        " s.ended_at, s.began_in, s.worktree, m.status AS mission_status,"
        " EXISTS (SELECT 1 FROM edit_conflicts c WHERE c.agent_id = a.id AND c.told = 0)"
        " OR EXISTS (SELECT 1 FROM outside_edits o WHERE o.agent_id = a.id AND o.told = 0)"
        " AS met_others, EXISTS (SELECT 1 FROM locks l WHERE l.held_by = a.id"
        " AND l.status = 'active' AND l.automatic = 1) AS locks_edits,"
        f" {HAS_HANDOVERS} AS has_handovers, {_AGENT} FROM sessions s"
        " LEFT JOIN agents a ON a.id = s.agent_id LEFT JOIN missions m ON m.id = a.mission_id"
        " WHERE s.harness = :harness AND s.session_id = :session AND s.subagent = :subagent",
        **key.params,
    )
    if row is None:
        return None
    return Window(
        agent_id=row["window_agent"],
        state=row["context"],
        transcript_mark=row["transcript_mark"],
        last_event_at=row["last_event_at"],
        ended=row["ended_at"] is not None,
        agent=row if row["id"] is not None else None,
        mission_status=row["mission_status"],
        trees=(row["began_in"], row["worktree"]),
    )


def window_of(tx: Tx, key: Key) -> Window:
    """Return a window that has to exist."""
    window = find_window(tx, key)
    if window is None:
        raise AssertionError(f"a session is gone: {key}")
    return window


class Seen(msgspec.Struct, frozen=True):
    """Where a session is when it reports; ``begins`` if its CLI was started there just now.

    Without a checkout this is unknown, as with a hook that waited in the spool.
    """

    cwd: str | None = None
    checkout: Checkout | None = None
    begins: bool = False


# A session began in the first work tree that is known.
_BEGAN = "coalesce(began_in, :worktree)"
_HERE = "cwd = :cwd, worktree = :worktree, branch = :branch, head = :head"


def open_window(
    tx: Tx, ctx: Context, key: Key, wanted: str | None, known: Window | None, seen: Seen
) -> Window:
    """Return an open window, a new one if need be; ``wanted`` is the agent id that it asks for.

    An ended session that reports again continues under its old name.
    """
    here = seen.checkout or Checkout()
    place = {
        "cwd": seen.cwd,
        "worktree": here.worktree,
        "branch": here.branch,
        "head": here.head,
    }
    if known is None:
        tx.run(
            "INSERT INTO sessions (harness, session_id, subagent, agent_id, started_at,"
            " last_event_at, directory, cwd, began_in, worktree, branch, head) VALUES (:harness,"
            " :session, :subagent, :agent, :now, :now, :cwd, :cwd, :worktree, :worktree, :branch,"
            " :head)",
            **key.params,
            **place,
            agent=_agent_id(tx, ctx, key, wanted),
            now=ctx.now,
        )
        return window_of(tx, key)
    if known.ended or known.last_event_at != ctx.now or seen.begins:
        changes = "last_event_at = :now, ended_at = NULL, vanished = 0"
        if seen.cwd is not None and seen.begins:
            changes += ", directory = :cwd"
        if seen.cwd is not None and seen.checkout is not None:
            changes += f", {_HERE}, began_in = {':worktree' if seen.begins else _BEGAN}"
        tx.run(
            f"UPDATE sessions SET {changes} WHERE {WHERE_KEY}",
            **key.params,
            **{name: value for name, value in place.items() if f":{name}" in changes},
            now=ctx.now,
        )
    return known


def rename_session(tx: Tx, key: Key, previous_session_id: str) -> None:
    """Give a session's windows to the new session that a compaction made of it."""
    before = Key(key.harness, previous_session_id)
    if find_window(tx, before) is not None:
        tx.run(
            "UPDATE sessions SET session_id = :new WHERE harness = :harness AND session_id = :old",
            new=key.session_id,
            harness=before.harness,
            old=before.session_id,
        )


def _agent_id(tx: Tx, ctx: Context, key: Key, wanted: str | None) -> str:
    """Choose an agent id that no other session uses.

    A requested id is taken over from a session that has ended: its user wants the same agent again.
    An id that is made from a session id means that session only. An agent that was registered for
    the process before any hook came is this session's.
    """
    if key.subagent:
        parent = find_window(tx, Key(key.harness, key.session_id))
        above = parent.agent_id if parent else _derived(key.harness, key.session_id)
        return _free(tx, f"{above[: LONGEST_ID - SHOWN - 4]}.{_short(key.subagent)}", key)
    if wanted is not None and _AGENT_ID.match(wanted):
        return _free(tx, wanted[: LONGEST_ID - 4], key, unless_ended=True)
    if wanted:
        text = f"FLEET_AGENT_ID of session {key.session_id} is {wanted!a}, not a valid agent id"
        tx.after_commit(LogLine("WARNING", text))
    return agent_without_session(tx, ctx) or _free(tx, _derived(key.harness, key.session_id), key)


def _derived(harness: str, session_id: str) -> str:
    return f"{harness}-{_short(session_id)}"


def _short(name: str) -> str:
    """Return the first characters of a harness's own id, as far as an agent id may hold them.

    A prefix for the kind of id (``ses_…``) tells nothing, so it is dropped.
    """
    return _NOT_IN_IDS.sub("", _KIND.sub("", name))[:SHOWN] or "unnamed"


def _free(tx: Tx, base: str, key: Key, *, unless_ended: bool = False) -> str:
    candidates = chain([base], (f"{base}.{number}" for number in count(2)))
    return next(name for name in candidates if not _taken(tx, name, key, unless_ended=unless_ended))


def _taken(tx: Tx, agent_id: str, key: Key, *, unless_ended: bool) -> bool:
    """Return whether another session uses this id; with ``unless_ended``, only if it lives."""
    live = (
        " AND s.ended_at IS NULL AND EXISTS"
        f" (SELECT 1 FROM agents a WHERE a.id = s.agent_id AND a.status IN {LIVING})"
    )
    found = tx.one(
        "SELECT 1 AS taken FROM sessions s WHERE s.agent_id = :agent AND NOT"
        " (s.harness = :harness AND s.session_id = :session AND s.subagent = :subagent)"
        + (live if unless_ended else ""),
        agent=agent_id,
        **key.params,
    )
    return found is not None


_mark = msgspec.json.Decoder(TranscriptMark).decode
_WORK = (PromptSubmitted, ToolStarted, ToolFinished, Paused)
# Events that show work; the beginning or compaction of a session shows none.
_WORK_TYPES = (
    *("prompt_submitted", "command_started", "command_finished", "tool_started"),
    *("tool_finished", "tool_failed", "file_modified", "agent_answered", "error_reported"),
)


def window_state_after(state: str, happening: AnyHappening) -> str:
    """Return the state of a window after something happened in it."""
    if isinstance(happening, Compacting):
        return "compacting" if happening.certain else state
    if isinstance(happening, Compacted):
        # Some harnesses report it again after the briefing, by a later event.
        return state if state == "briefed" else "lost"
    if isinstance(happening, SessionStarted):
        return _opened(state, happening.source)
    if isinstance(happening, PromptSubmitted) and state == "compacting":
        # Nobody reported its end, and a new turn has begun: assume the worst.
        return "lost"
    if isinstance(happening, _WORK) and state == "briefed":
        return "whole"
    return state


def _opened(state: str, source: str) -> str:
    if source == "compact":
        return state if state == "briefed" else "lost"
    if source == "resume":
        # The conversation is read again: what it held is still there, what was lost stays lost.
        return "lost" if state in ("compacting", "lost") else state
    return "whole"


def set_window_state(tx: Tx, key: Key, state: str) -> None:
    """Store the state of a window."""
    tx.run(
        f"UPDATE sessions SET context = :state WHERE {WHERE_KEY}",
        **key.params,
        state=state,
    )


def set_window_usage(tx: Tx, key: Key, usage: WindowUsed | None) -> None:
    """Store how full a window is, as its harness last reported it; None forgets it."""
    tx.run(
        f"UPDATE sessions SET window_tokens = :tokens, window_size = :size WHERE {WHERE_KEY}",
        **key.params,
        tokens=usage and usage.tokens,
        size=usage and usage.size,
    )


def set_briefed(
    tx: Tx, ctx: Context, key: Key, delivery_id: str, payload: WindowBriefed | None = None
) -> None:
    """Record that the reply to a delivery holds the briefing, and append its event."""
    row = tx.one(
        f"UPDATE sessions SET context = 'briefed', briefed_by = :delivery WHERE {WHERE_KEY}"
        " RETURNING agent_id",
        **key.params,
        delivery=delivery_id,
    )
    if row is not None and payload is not None:
        _emit(tx, ctx, row["agent_id"], payload)


def revoke_briefing(tx: Tx, ctx: Context, delivery_id: str) -> None:
    """Make the briefing due again, because the reply that held it was never read.

    If a delivery is also in the spool, its client gave up waiting.
    """
    for row in tx.all(
        "UPDATE sessions SET context = 'lost', briefed_by = NULL WHERE briefed_by = :delivery"
        " RETURNING agent_id",
        delivery=delivery_id,
    ):
        _emit(tx, ctx, row["agent_id"], BriefingMissed(reason="reply_lost"))


def _emit(tx: Tx, ctx: Context, agent_id: str, payload: Payload) -> None:
    mission_id = tx.value("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
    emit(tx, ctx, payload, mission_id=mission_id, agent_id=agent_id)


def has_briefings(tx: Tx, mission_id: str) -> bool:
    """Return whether hooks give the agents of a mission their briefing."""
    found = tx.value("SELECT briefing FROM missions WHERE id = :id", id=mission_id)
    return bool(found != "off")


def knows_work(tx: Tx, mission_id: str, agent_id: str) -> bool:
    """Return whether there is work to brief an agent about: a session that only began has none."""
    return tx.exists(
        "SELECT 1 AS known FROM missions m WHERE m.id = :mission AND (m.origin <> 'session'"
        " OR m.total_sorties > 0"
        " OR EXISTS (SELECT 1 FROM events WHERE mission_id = m.id"
        f" AND type IN {in_sql(_WORK_TYPES)})"
        " OR EXISTS (SELECT 1 FROM notes WHERE mission_id = m.id)"
        " OR EXISTS (SELECT 1 FROM locks WHERE held_by = :agent AND status = 'active')"
        " OR EXISTS (SELECT 1 FROM deliveries WHERE agent_id = :agent"
        " AND status IN ('queued', 'delivered')))",
        mission=mission_id,
        agent=agent_id,
    )


def briefing_due(
    tx: Tx, ctx: Context, key: Key, mark: TranscriptMark | None
) -> tuple[str, str] | None:
    """Return the agent and the mission of a compacted window, None for any other.

    ``mark`` is the present state of its transcript. Nothing is recorded: the briefing stays due.
    """
    window = find_window(tx, key)
    if window is None or window.mission_id is None:
        return None
    rewritten = mark is not None and transcript_rewritten(window.transcript_mark, mark)
    due = rewritten or window.state == "lost"
    wanted = due and has_briefings(tx, window.mission_id)
    return (window.agent_id, window.mission_id) if wanted else None


def transcript_rewritten(before: str | None, now: TranscriptMark) -> bool:
    """Return whether a transcript was shortened or replaced since it was last looked at."""
    if before is None:
        return False
    then = _mark(before)
    return now.size < then.size or (None not in {then.head, now.head} and now.head != then.head)


def set_transcript_mark(tx: Tx, key: Key, before: str | None, mark: TranscriptMark) -> None:
    """Store the present mark of a transcript, with its last known beginning."""
    if mark.head is None and before is not None:
        mark = msgspec.structs.replace(mark, head=_mark(before).head)
    tx.run(
        f"UPDATE sessions SET transcript_mark = :mark WHERE {WHERE_KEY}",
        **key.params,
        mark=msgspec.json.encode(mark).decode(),
    )
