"""The fleet at a moment: agents, locks and conflicts from their history, missions from events.

Reads of the log end at the moment, and times are compared with the moment's time. Each list thus
shows what it showed then.
"""

from operator import attrgetter
from typing import Any

from ...protocol.errors import InvalidState
from ...protocol.records import Agent, Lock
from ...protocol.requests.attention import EditConflict, PlanStep
from ...protocol.requests.timeline import AgentMoment, FleetAt, FleetMoment, MissionAtMoment
from ...protocol.timestamps import iso, to_ms
from ...protocol.types import OPEN_MISSION
from ..attention.conflicts import HOUR_MS, KEPT, MOST, conflicts_among
from ..attention.overview import (
    DAY_MS,
    LOOKED_BACK,
    count_files,
    last_done,
    last_prompted,
    most_urgent,
    urgency,
    with_subagents,
    with_wish,
)
from ..checkpoints.moments import Moment, Plan, find_moment, plan_at, prolonged, refuse_two
from ..core.context import Context
from ..core.event_log import LOG_END, nth_newest_position, position_before
from ..core.history import KNOWN_FROM
from ..core.mappers import agent_of, lock_of
from ..core.registry import method
from ..core.sql import LIVING, in_sql
from ..core.tx import Row, Tx
from ..liveness.needs import MID_TURN, one_line

# The limit of each list.
LISTED = 1_000
# The newest row of a record up to the moment. Changes after the last event of the moment may have
# left no event, or their events are gone: for those the time decides.
_THEN = "x.seq <= :gap AND (x.seq < :seq OR x.changed_at <= :time)"
_AS_OF = (
    f"h.seq = (SELECT x.seq FROM {{0}}_history x WHERE x.{{0}}_id = {{1}}.id AND {_THEN}"
    " ORDER BY x.seq DESC LIMIT 1) AND h.changed_at = (SELECT max(x.changed_at)"
    f" FROM {{0}}_history x WHERE x.{{0}}_id = {{1}}.id AND x.seq = h.seq AND {_THEN})"
)
_AGENTS, _LOCKS = _AS_OF.format("agent", "a"), _AS_OF.format("lock", "l")


@method(FleetAt)
def at(tx: Tx, ctx: Context, request: FleetAt) -> FleetMoment:
    """Return the fleet at a moment."""
    refuse_two(request.time, request.seq)
    moment = find_moment(tx, ctx, request.time, request.seq)
    _refuse_unknown(tx, moment)
    past = Past(tx, ctx, moment)
    return FleetMoment(
        seq=moment.seq,
        timestamp=moment.time,
        agents=past.agents()[:LISTED],
        locks=past.locks()[:LISTED],
        missions=past.missions(),
        conflicts=past.conflicts()[:LISTED],
    )


def _known_from(tx: Tx) -> int:
    found: Any = tx.value("SELECT value FROM store_meta WHERE key = :key", key=KNOWN_FROM)
    return int(found or 0)


def _gap(tx: Tx, moment: Moment) -> int:
    """Return the last ``seq`` that may belong to the moment: later events may be gone."""
    following = tx.value(
        "SELECT seq FROM events WHERE seq > :seq ORDER BY seq LIMIT 1", seq=moment.seq
    )
    return following - 1 if following else LOG_END


def is_known(tx: Tx, moment: Moment) -> bool:
    """Whether the history goes back to a moment."""
    return _gap(tx, moment) >= _known_from(tx)


def _refuse_unknown(tx: Tx, moment: Moment) -> None:
    """Refuse a moment before the history; raises InvalidState with the first known one."""
    if is_known(tx, moment):
        return
    since = tx.value(
        "SELECT timestamp FROM events WHERE seq >= :seq ORDER BY seq LIMIT 1", seq=_known_from(tx)
    )
    raise InvalidState(
        f"The fleet is known since {since}, not at {moment.time}.",
        hint="Give a later moment.",
        since=since,
    )


class Past:
    """Reads of the store for one moment; the plan of each mission is read once."""

    def __init__(self, tx: Tx, ctx: Context, moment: Moment) -> None:
        self._tx, self._ctx, self._moment = tx, ctx, moment
        self._now_ms = to_ms(moment.time)
        # Records that last changed before this are not read. It is a day, because clocks are set
        # back now and then.
        self._day_before = iso(self._now_ms - DAY_MS)
        self._plans: dict[str, Plan | None] = {}
        self._then = {"seq": moment.seq, "gap": _gap(tx, moment), "time": moment.time}
        self._rows = self._agent_rows()

    def _agent_rows(self) -> dict[str, Row]:
        """Return the agents of the moment by their ids, including those that were gone."""
        rows = self._tx.all(
            # SQLite begins with the agents because the join is a cross join.
            "SELECT h.*, h.agent_id AS id, a.pid, a.pid_started, a.note_json FROM agents a"
            f" CROSS JOIN agent_history h WHERE h.agent_id = a.id AND {_AGENTS}",
            **self._then,
        )
        return {row["id"]: row for row in rows}

    def agent(self, agent_id: str) -> Agent | None:
        """Return an agent as it was; None before it came."""
        row = self._rows.get(agent_id)
        return agent_of(self._seen(row)) if row else None

    def agents_of(self, mission_id: str) -> set[str]:
        """Return the agents that were in a mission."""
        return {name for name, row in self._rows.items() if row["mission_id"] == mission_id}

    def plan(self, mission_id: str) -> Plan | None:
        """Return the plan of a mission as it was, None if it is unknown."""
        if mission_id not in self._plans:
            self._plans[mission_id] = plan_at(self._tx, mission_id, self._moment)
        return self._plans[mission_id]

    def agents(self) -> list[AgentMoment]:
        """Return what agents did and needed, the most urgent first."""
        inner = {
            row["agent_id"]: (row["harness"], row["session_id"])
            for row in self._tx.all(
                "SELECT agent_id, harness, session_id FROM sessions WHERE subagent <> ''"
            )
        }
        asking = most_urgent(
            self._now_ms,
            [
                {**row, "harness": inner[name][0], "session_id": inner[name][1]}
                for name, row in self._rows.items()
                if name in inner and row["needs"] in MID_TURN and f"'{row['status']}'" in LIVING
            ],
        )
        wishes = self._wishes()
        rows = [
            with_wish(
                with_subagents(
                    self._now_ms, self._seen(row) if row["needs_since"] is None else row, asking
                ),
                wishes,
            )
            for name, row in self._rows.items()
            if name not in inner
            and row["status"] != "gone"
            and (row["status"] != "lost" or self._is_missed(row))
        ]
        rows.sort(key=lambda row: urgency(self._now_ms, row))
        hour = position_before(self._tx, iso(self._now_ms - HOUR_MS), self._moment.seq)
        titles = self._titles({row["mission_id"] for row in rows} - {None})
        return [self._agent(row, hour, titles.get(row["mission_id"])) for row in rows[:LISTED]]

    def _is_missed(self, row: Row) -> bool:
        """Whether nobody continues the work of a lost agent."""
        if row["succeeded_by"] is not None or row["mission_id"] is None:
            return False
        return self._status(row["mission_id"]) in OPEN_MISSION

    def _status(self, mission_id: str) -> str | None:
        if plan := self.plan(mission_id):
            return str(plan.mission["status"])
        found: str | None = self._tx.value(
            "SELECT status FROM missions WHERE id = :id", id=mission_id
        )
        return found

    def _seen(self, row: Row) -> Row:
        """Return an agent's row with when it was last seen, from its activity since the change."""
        active = self._tx.value(
            "SELECT timestamp FROM events WHERE agent_id = :id AND seq > :since AND seq <= :end"
            " AND activity = 1 ORDER BY seq DESC LIMIT 1",
            id=row["id"],
            since=row["seq"],
            end=self._moment.seq,
        )
        return row | {"last_seen_at": active} if active else row

    def _wishes(self) -> dict[str, Row]:
        """Return the hand-offs that agents asked for, and that no person had answered."""
        rows = self._tx.all(
            "SELECT h.agent_id, h.harness, h.created_at FROM handoffs h"
            " WHERE h.successor_id IS NULL AND h.seq <= :seq AND h.created_at <= :time"
            " AND (h.state = 'asked' OR h.ended_at > :time) AND NOT EXISTS (SELECT 1 FROM events e"
            " WHERE e.agent_id = h.agent_id AND e.seq > h.seq AND e.seq <= :seq"
            " AND e.type = 'prompt_submitted')",
            seq=self._moment.seq,
            time=self._moment.time,
        )
        return {row["agent_id"]: row for row in rows}

    def _titles(self, mission_ids: set[str]) -> dict[str, str]:
        """Return the titles that missions had; the present ones where those are unknown."""
        found = {}
        for mission_id in mission_ids:
            if plan := self.plan(mission_id):
                found[mission_id] = plan.mission["title"]
            else:
                found[mission_id] = self._tx.value(
                    "SELECT title FROM missions WHERE id = :id", id=mission_id
                )
        return found

    def _agent(self, row: Row, hour: int, title: str | None) -> AgentMoment:
        tx, end, agent_id = self._tx, self._moment.seq, row["id"]
        floor = nth_newest_position(tx, agent_id, LOOKED_BACK, end)
        doing = last_done(tx, agent_id, floor, end)
        return AgentMoment(
            agent_id=agent_id,
            role=row["role"],
            harness=row["harness"],
            session_id=row["session_id"],
            status=row["status"],
            needs=row["needs"] or "none",
            since=row["needs_since"] or (doing.since if doing else row["registered_at"]),
            text=row["needs_text"],
            reset_at=row["needs_reset_at"],
            prompted_at=last_prompted(tx, agent_id, floor, end),
            mission_id=row["mission_id"],
            mission=one_line(title),
            doing=doing,
            step=self._step(row),
            files_changed=count_files(tx, agent_id, max(floor, hour), end),
            cwd=row["cwd"],
            machine=row["machine"] or None,
        )

    def _step(self, row: Row) -> PlanStep | None:
        """Return the step of its mission that an agent had in progress, else an unassigned one."""
        plan = self.plan(row["mission_id"]) if row["mission_id"] else None
        if plan is None:
            return None
        begun = [
            (sortie.assigned_to is None, number, sortie.title)
            for number, sortie in enumerate(plan.sorties, 1)
            if sortie.status == "in_progress" and sortie.assigned_to in (None, row["id"])
        ]
        if not begun:
            return None
        _, number, title = min(begun)
        return PlanStep(number=number, total=len(plan.sorties), title=one_line(title) or "")

    def missions(self) -> list[MissionAtMoment]:
        """Return the missions that were open, the newest first, up to the limit.

        A mission that was open then and is closed now has changed since.
        """
        rows = self._tx.all(
            f"SELECT m.id FROM missions m WHERE (m.status IN {in_sql(OPEN_MISSION)}"
            " OR m.updated_at >= :day_before) AND (EXISTS (SELECT 1 FROM events e"
            " WHERE e.mission_id = m.id AND e.seq <= :seq) OR EXISTS (SELECT 1 FROM checkpoints c"
            " WHERE c.mission_id = m.id AND c.seq <= :seq)) ORDER BY m.created_at DESC, m.id",
            seq=self._moment.seq,
            day_before=self._day_before,
        )
        found: list[MissionAtMoment] = []
        for row in rows:
            if len(found) == LISTED:
                break
            plan = self.plan(row["id"])
            if plan is None or plan.mission["status"] not in OPEN_MISSION:
                continue
            found.append(
                MissionAtMoment(
                    id=row["id"],
                    title=plan.mission["title"],
                    status=plan.mission["status"],
                    total_sorties=len(plan.sorties),
                    completed_sorties=plan.completed,
                    progress_percent=plan.progress_percent,
                )
            )
        return found

    def locks(self) -> list[Lock]:
        """Return the locks in force, oldest first, with expiries as activity had prolonged them."""
        in_force = (
            "l.granted_seq <= :gap AND (l.granted_seq < :seq OR l.acquired_at <= :time)"
            " AND (l.status = 'active' OR l.ended_seq > :gap"
            " OR (l.ended_seq >= :seq AND l.released_at > :time)) AND l.id IN"
            " (SELECT id FROM locks WHERE status = 'active' UNION ALL"
            " SELECT id FROM locks WHERE status <> 'active' AND released_at >= :day_before)"
        )
        params = self._then | {"day_before": self._day_before}
        changed = {
            row["lock_id"]: row
            for row in self._tx.all(
                "SELECT h.* FROM locks l CROSS JOIN lock_history h"
                f" WHERE h.lock_id = l.id AND {_LOCKS} AND {in_force}",
                **params,
            )
        }
        rows = [
            _granted({**row, **changed.get(row["id"], {"seq": row["granted_seq"]})})
            for row in self._tx.all(f"SELECT l.* FROM locks l WHERE {in_force}", **params)
        ]
        first: dict[str, int] = {}
        for row in rows:
            first[row["held_by"]] = min(first.get(row["held_by"], row["seq"]), row["seq"])
        activity = {holder: self._activity(holder, since) for holder, since in first.items()}
        found = [
            prolonged(
                lock_of(row),
                row["seq"],
                activity[row["held_by"]],
                orphaned=row["orphaned_at"] is not None,
            )
            for row in rows
        ]
        running = [lock for lock in found if (lock.expires_at or "") > self._moment.time]
        return sorted(running, key=attrgetter("acquired_at", "id"))

    def _activity(self, agent_id: str, since: int) -> list[tuple[int, str]]:
        return [
            (seq, time)
            for seq, time in self._tx.tuples(
                "SELECT seq, timestamp FROM events WHERE agent_id = :agent AND seq > :since"
                " AND seq <= :end AND activity = 1 ORDER BY seq",
                agent=agent_id,
                since=since,
                end=self._moment.seq,
            )
        ]

    def conflicts(self, agent_ids: set[str] | None = None) -> list[EditConflict]:
        """Return the conflicts of the hour before, newest first; only of ``agent_ids`` if given."""
        rows = self._tx.all(
            "SELECT h.*, m.name AS machine_name FROM edit_history h"
            " JOIN agents a ON a.id = h.agent_id LEFT JOIN machines m ON m.id = a.machine"
            " WHERE h.at >= :since AND h.at <= :until AND h.seq <= :gap"
            " AND (h.seq <= :seq OR h.at <= :time) ORDER BY h.seq",
            since=iso(self._now_ms - HOUR_MS),
            until=iso(self._now_ms + HOUR_MS),
            **self._then,
        )
        newest = {(row["agent_id"], row["path"]): row for row in rows}
        found, kept = [], dict.fromkeys((name for name, _ in newest), 0)
        for row in sorted(
            newest.values(), key=lambda row: (-to_ms(row["at"]), row["agent_id"], row["path"])
        ):
            agent = self._rows.get(row["agent_id"])
            kept[row["agent_id"]] += 1
            if agent and f"'{agent['status']}'" in LIVING and kept[row["agent_id"]] <= KEPT:
                found.append(row | {"machine": agent["machine"]})
        return conflicts_among(self._ctx, found[:MOST], agent_ids)


def _granted(row: Row) -> Row:
    """Return a lock that was in force, from its row and its history if it has one.

    Without history, it is as it was granted, apart from what activity has prolonged.
    """
    expires = row["expires_at"] if "lock_id" in row else None
    if expires is None:
        expires = iso(to_ms(row["acquired_at"]) + row["timeout_ms"])
    return row | {"status": "active", "released_at": None, "expires_at": expires}
