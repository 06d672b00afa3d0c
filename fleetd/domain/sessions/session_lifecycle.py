"""Life of a session: registering its agent, the mission it works in, its end.

A session joins a mission that somebody created for its directory, never one that was created for
another session.
"""

from ...harness.report import (
    DirectoryChanged,
    Noted,
    Paused,
    Report,
    SessionEnded,
    SessionStarted,
    WindowUsed,
    WorkEnded,
    WorkRuns,
)
from ...protocol.requests.agent import AgentRegister, Registration
from ...protocol.types import OPEN_MISSION, Role
from ..agents import agents
from ..core.context import Context
from ..core.history import agent_changed
from ..core.ids import WHERE_KEY, Key, find
from ..core.observers import agent_process_ended
from ..core.sql import LIVING, in_sql, inside_of, named_params
from ..core.tx import LogLine, Row, Tx
from ..liveness.needs import MID_TURN
from ..missions import auto_mission
from ..missions.milestones import begin_mission
from ..missions.selection import belongs, inherited_mission, is_automatic, mission_to_join
from . import notices
from .sessions import Window


def register_agent(
    tx: Tx,
    ctx: Context,
    report: Report,
    window: Window,
    parent: Window | None,
    cwd: str | None,
    wanted: str | None,
) -> Registration | None:
    """Register the agent of a session unless it is there already; return what it has missed.

    ``parent`` is a subagent's session. ``wanted`` is a mission that the session's environment
    names; an ended or unknown one is skipped.
    """
    agent_id, row = window.agent_id, window.agent
    if row is not None and (_present(row, ctx, report) or _stays_replaced(row, report)):
        return None
    if row is not None and _was_another_sessions(tx, ctx, row, report, cwd):
        assign_mission(tx, [agent_id], None)
        row = {**row, "mission_id": None}
    if row is not None and row["succeeded_by"] is not None:
        notices.add_handover(tx, agent_id, notices.HandoverNotice("from", row["succeeded_by"]))
    heir = inherited_mission(tx, agent_id) if row is None else None
    if heir is not None:
        joined: str | None = heir["id"]
    elif parent is not None:
        joined = parent.mission_id
    else:
        joined = _mission_to_join(tx, ctx, report, row, cwd, wanted)
    first: Role = "specialist" if joined or report.subagent else "dispatch"
    request = AgentRegister(
        agent_id,
        (row or heir or {"role": first})["role"],
        harness=report.harness,
        session_id=report.session_id,
        pid=ctx.facts.agent_pid,
        mission_id=joined,
        cwd=cwd,
    )
    return agents.register(tx, ctx, request)


def _present(row: Row, ctx: Context, report: Report) -> bool:
    """Return whether the agent is registered for this session and process, here and alive."""
    if f"'{row['status']}'" not in LIVING or row["session_id"] != report.session_id:
        return False
    pid = ctx.facts.agent_pid
    if not ctx.is_here(row):
        return pid is None and row["pid"] is not None  # nobody would watch its process then
    return pid is None or (row["pid"], row["pid_started"]) == (pid, ctx.facts.pid_started)


# What a session still reports after its work went to another agent, without continuing.
_NO_RETURN = (SessionEnded, Noted, WindowUsed, DirectoryChanged, WorkEnded, WorkRuns)


def _stays_replaced(row: Row, report: Report) -> bool:
    """Return whether an agent that has a successor only reports in passing, or ends."""
    return row["succeeded_by"] is not None and all(
        isinstance(each, _NO_RETURN) or (isinstance(each, Paused) and each.reminder)
        for each in report.happenings
    )


def _was_another_sessions(tx: Tx, ctx: Context, row: Row, report: Report, cwd: str | None) -> bool:
    """Return whether an agent's mission was made for an earlier session under its name.

    A new session continues it only in its directory, and while it is open. A session that is
    resumed under a new id still owns it.
    """
    resumed = any(SessionStarted(how) in report.happenings for how in ("resume", "compact"))
    if resumed or row["session_id"] in (None, report.session_id):
        return False
    mission = tx.one("SELECT * FROM missions WHERE id = :id", id=row["mission_id"])
    if mission is None or not is_automatic(mission):
        return False
    return mission["status"] not in OPEN_MISSION or not belongs(ctx, mission, cwd)


def _mission_to_join(
    tx: Tx, ctx: Context, report: Report, row: Row | None, cwd: str | None, wanted: str | None
) -> str | None:
    named = tx.one("SELECT * FROM missions WHERE id = :id", id=wanted) if wanted else None
    if wanted and (named is None or named["status"] not in OPEN_MISSION):
        what = "is over" if named else "is unknown"
        text = f"FLEET_MISSION_ID of session {report.session_id} is {wanted!a}, which {what}"
        tx.after_commit(LogLine("WARNING", text))
    if named is not None and named["status"] in OPEN_MISSION:
        return str(named["id"])
    if row is not None and row["mission_id"] is not None:
        return None
    found = mission_to_join(tx, ctx, cwd)
    return str(found["id"]) if found else None


def mission_of(tx: Tx, agent_id: str) -> str | None:
    """Return the mission that an agent belongs to."""
    found: str | None = tx.value("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
    return found


def ensure_mission(
    tx: Tx, ctx: Context, harness: str, window: Window, cwd: str | None, title: str | None
) -> Window:
    """Return the window of an agent in an open mission; the window is unchanged if none is made.

    ``title`` is the title of a new mission: the user's first words.
    """
    if window.mission_status == "pending":
        begin_mission(tx, ctx, find(tx, "mission", str(window.mission_id)))
        return window.in_mission(window.mission_id, "in_progress")
    window = resume_mission(tx, ctx, window)
    if window.mission_status == "in_progress":
        return window
    found = mission_to_join(tx, ctx, cwd)
    if found is not None:
        begin_mission(tx, ctx, found)
        mission_id = str(found["id"])
    elif ctx.config.hooks.auto_missions:
        mission_id = auto_mission.begin(
            tx,
            ctx,
            agent_id=window.agent_id,
            project_dir=ctx.facts.project_root or cwd,
            title=title,
            harness=harness,
        )
    else:
        return window
    assign_mission(tx, [window.agent_id], mission_id)
    return window.in_mission(mission_id, "in_progress")


def resume_mission(tx: Tx, ctx: Context, window: Window) -> Window:
    """Reopen the mission that was closed when the session ended; return the resulting window."""
    if window.mission_id is None or window.mission_status in OPEN_MISSION:
        return window
    if not auto_mission.reopen(tx, ctx, window.mission_id):
        return window
    return window.in_mission(window.mission_id, "in_progress")


def assign_mission(tx: Tx, agent_ids: list[str], mission_id: str | None) -> None:
    """Assign agents to a mission, or to none."""
    tx.run(
        f"UPDATE agents SET mission_id = :mission WHERE id IN ({inside_of('id', agent_ids)})",
        mission=mission_id,
        **named_params("id", agent_ids),
    )
    agent_changed(tx, *agent_ids)


def set_directory(tx: Tx, agent_id: str, cwd: str) -> None:
    """Set the directory of an agent on its machine."""
    tx.run("UPDATE agents SET cwd = :cwd WHERE id = :id", id=agent_id, cwd=cwd)
    agent_changed(tx, agent_id)


def set_waiting(tx: Tx, agent_id: str) -> None:
    """Make an agent wait for the first prompt of its session, however long that takes.

    Not in a mission with a lost agent: nobody waits there, and its silence has to be noticed.
    """
    if tx.one(
        "UPDATE agents SET status = 'waiting' WHERE id = :id AND status = 'active' AND NOT EXISTS"
        " (SELECT 1 FROM agents other WHERE other.mission_id = agents.mission_id"
        " AND other.status = 'lost' AND other.succeeded_by IS NULL) RETURNING id",
        id=agent_id,
    ):
        agent_changed(tx, agent_id)


def may_have_stopped(tx: Tx, agent_id: str) -> bool:
    """Return whether an agent is in the middle of a turn, as far as known: at work, or asking."""
    found = tx.one(
        "SELECT id FROM agents WHERE id = :id"
        f" AND (status = 'active' OR needs IN {in_sql(MID_TURN)})",
        id=agent_id,
    )
    return found is not None


def may_await_permission(tx: Tx, report: Report, agent_id: str) -> bool:
    """Return whether an agent may wait for a permission that only a reminder reports.

    It is in the middle of a turn, and no agent of its session is known to wait for one.
    """
    found = tx.one(
        "SELECT id FROM agents WHERE id = :agent AND status = 'active' AND NOT EXISTS"
        " (SELECT 1 FROM sessions s JOIN agents a ON a.id = s.agent_id"
        " WHERE s.harness = :harness AND s.session_id = :session AND a.needs = 'permission')",
        agent=agent_id,
        harness=report.harness,
        session=report.session_id,
    )
    return found is not None


def may_ask_by_reminder(tx: Tx, agent_id: str) -> bool:
    """Return whether an agent may ask something that only a reminder reports.

    An agent that waits already may not: what it waits for is known better.
    """
    found = tx.one(
        "SELECT id FROM agents WHERE id = :id AND (status = 'active' OR needs = 'background')",
        id=agent_id,
    )
    return found is not None


def active_subagents(tx: Tx, report: Report) -> list[str]:
    """Return the subagents that were in a turn when their session's turn ended.

    Return none for a subagent's own report. A subagent that the session lists as running continues.
    """
    listed = [each.items for each in report.happenings if isinstance(each, WorkRuns) and each.whole]
    going_on = {item.id for items in listed for item in items}
    rows = _subagents(tx, report, "a.status = 'active' OR a.needs IS NOT NULL")
    return [row["id"] for row in rows if row["subagent"] not in going_on]


def asking_subagents(tx: Tx, report: Report) -> list[str]:
    """Return the subagents of a session that ask its user, none for a subagent's own report."""
    return [row["id"] for row in _subagents(tx, report, f"a.needs IN {in_sql(MID_TURN)}")]


def _subagents(tx: Tx, report: Report, which: str) -> list[Row]:
    if report.subagent:
        return []
    return tx.all(
        "SELECT s.agent_id AS id, s.subagent FROM sessions s JOIN agents a ON a.id = s.agent_id"
        " WHERE s.harness = :harness AND s.session_id = :session AND s.subagent <> ''"
        f" AND a.status IN {LIVING} AND ({which}) ORDER BY s.agent_id",
        harness=report.harness,
        session=report.session_id,
    )


@agent_process_ended.subscribe
def end_session_of_agent(tx: Tx, ctx: Context, agent_id: str, reason: str) -> None:
    """End the open session of an agent whose process ended, if it has one."""
    row = tx.one(
        "SELECT harness, session_id, subagent FROM sessions"
        " WHERE agent_id = :agent AND ended_at IS NULL",
        agent=agent_id,
    )
    if row is not None:
        end_session(tx, ctx, Key(**row), reason, activity=False, vanished=True)


def end_session(
    tx: Tx, ctx: Context, key: Key, reason: str, *, activity: bool = True, vanished: bool = False
) -> None:
    """Mark the agent of a window gone, with its subagents when the session ends.

    The last agent to leave closes a mission that was made for the session. The end is no
    ``activity`` if nobody reported it. A session that ``vanished`` was not closed by its user.
    """
    where = WHERE_KEY if key.subagent else "harness = :harness AND session_id = :session"
    params = {name: value for name, value in key.params.items() if f":{name}" in where}
    rows = tx.all(
        f"SELECT agent_id, subagent FROM sessions WHERE {where} AND ended_at IS NULL"
        " ORDER BY subagent DESC",
        **params,
    )
    for row in rows:
        agent = tx.one("SELECT * FROM agents WHERE id = :id", id=row["agent_id"])
        if agent is None:
            continue
        agents.mark_gone(tx, ctx, agent, reason, activity=activity)
        if agent["mission_id"] is not None and not row["subagent"]:
            auto_mission.end(tx, ctx, agent["mission_id"], reason)
    # Last, so that the events of an agent that leaves are this session's.
    tx.run(
        "UPDATE sessions SET ended_at = :now, vanished = :vanished"
        f" WHERE {where} AND ended_at IS NULL",
        now=ctx.now,
        vanished=int(vanished),
        **params,
    )
