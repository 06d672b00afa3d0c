"""Collection of a report: its subject, the events of its places batch by batch, and the records."""

import msgspec

from ...protocol.display import path
from ...protocol.errors import InvalidParams
from ...protocol.records import Agent, Mission
from ...protocol.requests.report import (
    Report,
    ReportAgent,
    ReportGet,
    ReportOmitted,
    ReportOpen,
    ReportSortie,
)
from ...protocol.timestamps import to_ms
from ...protocol.types import OPEN_MISSION
from ..attention.conflicts import conflicts_of_reader
from ..checkpoints.derived_context import merged_places
from ..checkpoints.moments import Moment, find_moment
from ..core.context import Context
from ..core.event_log import LOG_END, position
from ..core.ids import find
from ..core.mappers import (
    agent_of,
    lock_of,
    mission_of,
    note_of,
    recovery_of,
    states_of,
    summary_of,
)
from ..core.soft_delete import LIVE
from ..core.sql import Where, chunks, in_sql, inside_of, named_params
from ..core.tx import Row, Tx
from ..recovery.context_builder import build
from ..stats.compactions import EVALUATED_TYPES
from .past import CONFLICTS, LINES, LOCKS, SORTIES, turn_back
from .story import DATA_TYPES, LISTED, Part, Story

_SUMMARY = (
    "id, mission_id, timestamp, trigger, trigger_details, progress_percent, sortie_count,"
    " lock_count, message_count, size_bytes, consumed_at, undo"
)
# The data of events that nobody reads here, and what harnesses kept of a window, is not loaded.
_READ = in_sql(sorted({*DATA_TYPES, *EVALUATED_TYPES} - {"window_compacted"}))
_COLUMNS = (
    "seq, type, timestamp, mission_id, agent_id, activity,"
    f" CASE WHEN type IN {_READ} THEN data_json ELSE '{{}}' END AS data_json"
)


# Records that were made up to a moment: the ``seq`` of some is the end of the log before them.
_MADE = "seq <= :last AND created_at <= :time"
FOREVER = "9999-12-31T23:59:59.999Z"


class Subject(msgspec.Struct, frozen=True):
    """The subject of a report, and the position of the log up to which it goes.

    ``missions`` are the mission with those merged into it, which come first; empty for an agent.
    ``moment`` is the moment of the report; None for now.
    """

    agent_id: str | None
    mission_id: str | None
    missions: tuple[str, ...]
    end: int
    moment: Moment | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """Return whose events are read, one after the other: missions, or the agent."""
        return self.missions or (self.agent_id or "",)

    @property
    def newest(self) -> Moment:
        """Return the moment up to which records are reported."""
        return self.moment or Moment(LOG_END, FOREVER)


def find_subject(tx: Tx, ctx: Context, request: ReportGet) -> Subject:
    """Return the subject of a request; raises NotFound, or InvalidParams."""
    if (request.mission_id is None) == (request.agent_id is None):
        raise InvalidParams(
            "Give either mission_id or agent_id.",
            hint="fleetctl mission list and fleetctl agent list show the ids.",
            field="mission_id",
        )
    moment = find_moment(tx, ctx, request.until, None) if request.until else None
    end = moment.seq if moment else position(tx)
    if request.agent_id is not None:
        return Subject(find(tx, "agent", request.agent_id)["id"], None, (), end, moment)
    mission_id = find(tx, "mission", request.mission_id or "")["id"]
    others = [each for each in merged_places(tx, mission_id) if each != mission_id]
    return Subject(None, mission_id, (*others, mission_id), end, moment)


def next_events(tx: Tx, ctx: Context, subject: Subject, place: str, since: int) -> list[Row]:
    """Return the next events of a place after a position; empty when there are no more."""
    if subject.agent_id is not None:
        return tx.all(
            f"SELECT {_COLUMNS} FROM events WHERE agent_id = :place AND seq > :since"
            " AND seq <= :end ORDER BY seq LIMIT :most",
            place=place,
            since=since,
            end=subject.end,
            most=ctx.batches.rows,
        )
    return tx.all(
        f"SELECT {_COLUMNS} FROM events WHERE mission_id = :place AND seq > :since"
        " AND seq <= :end ORDER BY seq LIMIT :most",
        place=place,
        since=since,
        end=subject.end,
        most=ctx.batches.rows,
    )


def finish(tx: Tx, ctx: Context, subject: Subject, story: Story) -> Report:
    """Return the report from the events and the records, now or at the moment."""
    report = _report(tx, ctx, subject, story)
    if subject.moment is None:
        return report
    return turn_back(tx, ctx, report, subject.moment, subject.mission_id, subject.agent_id)


def _report(tx: Tx, ctx: Context, subject: Subject, story: Story) -> Report:
    agent = agent_of(find(tx, "agent", subject.agent_id)) if subject.agent_id else None
    own = find(tx, "mission", subject.mission_id) if subject.mission_id else None
    wanted = subject.missions or _missions_of(agent, story)
    missions = _missions(tx, wanted)
    ids = [each.id for each in missions]
    planned, more_planned = _planned(tx, ids, subject.agent_id)
    agents, more_agents = _agents(tx, subject, story, planned)
    decided, more_decided = _notes(tx, _note_filters(subject, ids), subject.newest)
    recoveries, more_recoveries = _recoveries(tx, ids, subject.agent_id, subject.newest)
    checkpoints, more_checkpoints = _checkpoints(tx, ids, subject.newest)
    files, more_files = story.files()
    commands, more_commands = story.commands()
    commits, more_commits = story.commits()
    compacted, more_compacted = story.compactions(
        subject.moment.time if subject.moment else ctx.now
    )
    first = story.first_at or None
    return Report(
        generated_at=ctx.now,
        position=subject.end,
        agent=agent,
        mission=mission_of(tx, own) if own else None,
        missions=missions,
        first_at=first,
        last_at=story.last_at or None,
        elapsed_ms=max(to_ms(story.last_at) - to_ms(first), 0) if first else 0,
        active_ms=sum(part.active_ms for part in story.parts.values()),
        agents=agents,
        asked=list(story.asked.kept),
        planned=planned,
        files=files,
        commands=commands,
        commits=commits,
        decided=[note_of(row) for row in decided],
        left_open=ReportOpen() if subject.moment else _left_open(tx, ctx, own, agent),
        errors=list(story.errors.kept),
        compactions=compacted,
        recoveries=[recovery_of(row) for row in recoveries],
        checkpoints=[summary_of(row) for row in checkpoints],
        omitted=ReportOmitted(
            asked=story.asked.dropped,
            planned=more_planned,
            files=more_files,
            commands=more_commands,
            commits=more_commits,
            decided=more_decided,
            errors=story.errors.dropped,
            agents=more_agents,
            compactions=more_compacted,
            recoveries=more_recoveries,
            checkpoints=more_checkpoints,
        ),
    )


def _missions_of(agent: Agent | None, story: Story) -> tuple[str, ...]:
    """Return the missions that an agent worked in, and the one that it is in."""
    present = [agent.mission_id] if agent and agent.mission_id else []
    return tuple(dict.fromkeys([*story.missions.keys(), *present]))


def _missions(tx: Tx, ids: tuple[str, ...]) -> list[Mission]:
    """Return the missions that still exist, in the order of their creation."""
    rows: list[Row] = []
    for some in chunks(ids):
        rows += tx.all(
            f"SELECT * FROM missions WHERE id IN ({inside_of('m', some)})",
            **named_params("m", some),
        )
    rows.sort(key=lambda row: (row["created_at"], row["id"]))
    return [mission_of(tx, row) for row in rows]


def _planned(
    tx: Tx, mission_ids: list[str], agent_id: str | None
) -> tuple[list[ReportSortie], int]:
    """Return the sorties of missions, for an agent only its own, and how many more there are."""
    found: list[Row] = []
    for mission_id in mission_ids:
        found += tx.all(
            "SELECT * FROM sorties WHERE mission_id = :id ORDER BY position",
            id=mission_id,
        )
    if agent_id is not None:
        found = [row for row in found if row["assigned_to"] == agent_id]
    kept = found[:SORTIES]
    fields = ReportSortie.__struct_fields__
    return [ReportSortie(**{name: row[name] for name in fields}) for row in kept], len(
        found[SORTIES:]
    )


def _agents(
    tx: Tx, subject: Subject, story: Story, planned: list[ReportSortie]
) -> tuple[list[ReportAgent], int]:
    """Return the agents that took part: by events, by their registration, or by a sortie."""
    parts = {part.agent_id: part for part in story.parts.values()}
    names = list(parts)
    if subject.agent_id is not None:
        names = [subject.agent_id]
    elif subject.mission_id is not None:
        here = tx.all("SELECT id FROM agents WHERE mission_id = :id", id=subject.mission_id)
        given = (sortie.assigned_to for sortie in planned if sortie.assigned_to)
        names = list(dict.fromkeys([*names, *(row["id"] for row in here), *given]))
    known: dict[str, Agent] = {}
    for some in chunks(names[-LISTED:]):
        for row in tx.all(
            f"SELECT * FROM agents WHERE id IN ({inside_of('a', some)})", **named_params("a", some)
        ):
            known[row["id"]] = agent_of(row)
    agents = [_agent(name, parts.get(name), known.get(name)) for name in names[-LISTED:]]
    agents.sort(key=lambda each: (each.first_at is None, each.first_at or "", each.agent_id))
    return agents, len(names[:-LISTED]) + story.parts.dropped


def _agent(name: str, part: Part | None, agent: Agent | None) -> ReportAgent:
    if part is None:
        return ReportAgent(
            agent_id=name,
            agent=agent,
            first_at=None,
            last_at=None,
            calls=0,
            failed=0,
            changes=0,
            active_ms=0,
            last_answer=None,
        )
    return ReportAgent(
        agent_id=name,
        agent=agent,
        first_at=part.first_at,
        last_at=part.last_at,
        calls=part.calls,
        failed=part.failed,
        changes=part.changes,
        active_ms=part.active_ms,
        last_answer=part.last_answer,
    )


def _note_filters(subject: Subject, mission_ids: list[str]) -> list[tuple[str, str]]:
    """Return columns and values of the notes to list: those of the agent, or of the missions."""
    if subject.agent_id is not None:
        return [("agent_id", subject.agent_id)]
    return [("mission_id", each) for each in mission_ids]


def _notes(tx: Tx, filters: list[tuple[str, str]], newest: Moment) -> tuple[list[Row], int]:
    """Return the newest notes, the oldest first, and how many more there are."""
    rows: list[Row] = []
    more = 0
    for column, value in filters:
        rows += tx.all(
            f"SELECT * FROM notes WHERE {column} = :value AND {_MADE}"
            " ORDER BY seq DESC LIMIT :most",
            value=value,
            last=newest.seq,
            time=newest.time,
            most=LISTED,
        )
        number = tx.value(
            f"SELECT count(*) FROM notes WHERE {column} = :value AND {_MADE}",
            value=value,
            last=newest.seq,
            time=newest.time,
        )
        more += max(number - LISTED, 0)
    return _newest(rows, more)


def _newest(rows: list[Row], more: int) -> tuple[list[Row], int]:
    rows.sort(key=lambda row: int(row["seq"]))
    return rows[-LISTED:], more + len(rows[:-LISTED])


def _recoveries(
    tx: Tx, mission_ids: list[str], agent_id: str | None, newest: Moment
) -> tuple[list[Row], int]:
    rows: list[Row] = []
    more = 0
    for mission_id in mission_ids:
        where = Where()
        where.equal(mission_id=mission_id, agent_id=agent_id)
        where.add(_MADE, last=newest.seq, time=newest.time)
        rows += tx.all(
            f"SELECT * FROM recoveries WHERE {where} ORDER BY seq DESC LIMIT :most",
            **where.params,
            most=LISTED,
        )
        number = tx.value(f"SELECT count(*) FROM recoveries WHERE {where}", **where.params)
        more += max(number - LISTED, 0)
    return _newest(rows, more)


def _checkpoints(tx: Tx, mission_ids: list[str], newest: Moment) -> tuple[list[Row], int]:
    rows: list[Row] = []
    more = 0
    for mission_id in mission_ids:
        rows += tx.all(
            f"SELECT seq, {_SUMMARY} FROM checkpoints WHERE mission_id = :id AND {LIVE}"
            " AND seq <= :last AND timestamp <= :time ORDER BY seq DESC LIMIT :most",
            id=mission_id,
            last=newest.seq,
            time=newest.time,
            most=LISTED,
        )
        number = tx.value(
            f"SELECT count(*) FROM checkpoints WHERE mission_id = :id AND {LIVE}"
            " AND seq <= :last AND timestamp <= :time",
            id=mission_id,
            last=newest.seq,
            time=newest.time,
        )
        more += max(number - LISTED, 0)
    return _newest(rows, more)


def _left_open(tx: Tx, ctx: Context, mission: Row | None, agent: Agent | None) -> ReportOpen:
    """Return what is left to do in the mission, or in the agent's part of its mission."""
    agent_id = agent.id if agent else None
    if mission is None and agent is not None and agent.mission_id is not None:
        mission = find(tx, "mission", agent.mission_id)
    if mission is None or mission["status"] not in OPEN_MISSION:
        return ReportOpen()
    context = build(tx, ctx, mission, states_of(tx, mission["id"]), None, agent_id)
    locks = tx.all(
        "SELECT * FROM locks WHERE mission_id = :id AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        id=mission["id"],
        now=ctx.now,
    )
    conflicts = conflicts_of_reader(tx, ctx, mission["id"], agent_id)
    return ReportOpen(
        next_steps=context.next_steps[:LINES],
        blockers=context.blockers[:LINES],
        locks=[lock_of(row) for row in locks if agent_id in (None, row["held_by"])][:LOCKS],
        conflicts=[path(each.file) for each in conflicts[:CONFLICTS]],
    )
