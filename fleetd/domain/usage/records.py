"""Usage records: one row per request to a model, with the mission and the sortie of that time."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...harness.usage.record import UsageRecord
from ..core.context import Context
from ..core.event_log import position, position_before
from ..core.registry import frees_space
from ..core.sql import chunks, inside_of, named_params
from ..core.tx import Row, Tx

DAY_MS = 86_400_000
FIGURES = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
# A portion of a transcript covers a few hundred events at most.
EVENTS = 5_000
_UPDATE = ", ".join(f"{name} = :{name}" for name in FIGURES)
_COLUMNS = ("key", "at", "harness", "agent_id", "mission_id", "sortie_id", "model", *FIGURES)
_INSERT = (
    f"INSERT INTO usage_records ({', '.join(_COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)
# The mission and the sortie of a time.
_Place = Callable[[str], tuple[str | None, str | None]]


def kept_since(ctx: Context) -> str:
    """Return since when records are kept."""
    return ctx.days_ago(ctx.config.retention.usage_days)


def add(
    tx: Tx, ctx: Context, harness: str, agent_id: str, records: Sequence[UsageRecord], floor: str
) -> int:
    """Add the records of requests since ``floor``; return how many were known.

    For a request that is reported again the largest figures count: its first lines know less.
    """
    latest = ctx.at(DAY_MS)
    merged: dict[str, UsageRecord] = {}
    fit = 0
    for each in records:
        if floor <= each.at <= latest:
            fit += 1
            before = merged.get(each.key)
            merged[each.key] = each if before is None else _largest(before, each)
    known = _known(tx, list(merged))
    new = [each for key, each in merged.items() if key not in known]
    if new:
        place = _places(tx, agent_id, [each.at for each in new])
        tx.many(_INSERT, (_row(each, harness, agent_id, place(each.at)) for each in new))
    _raise_figures(tx, merged, known)
    return fit - len(new)


def _largest(one: UsageRecord, other: UsageRecord) -> UsageRecord:
    figures = {name: max(getattr(one, name), getattr(other, name)) for name in FIGURES}
    return msgspec.structs.replace(one, **figures)


def _row(each: UsageRecord, harness: str, agent_id: str, place: tuple[str | None, ...]) -> Row:
    mission_id, sortie_id = place
    return {
        **msgspec.structs.asdict(each),
        "harness": harness,
        "agent_id": agent_id,
        "mission_id": mission_id,
        "sortie_id": sortie_id,
    }


def _known(tx: Tx, keys: list[str]) -> dict[str, Row]:
    known: dict[str, Row] = {}
    for some in chunks(keys):
        rows = tx.all(
            f"SELECT key, {', '.join(FIGURES)} FROM usage_records"
            f" WHERE key IN ({inside_of('k', some)})",
            **named_params("k", some),
        )
        known |= {row["key"]: row for row in rows}
    return known


def _raise_figures(tx: Tx, merged: dict[str, UsageRecord], known: dict[str, Row]) -> None:
    changed = []
    for key, row in known.items():
        largest = {name: max(row[name], getattr(merged[key], name)) for name in FIGURES}
        if any(largest[name] != row[name] for name in FIGURES):
            changed.append({"key": key, **largest})
    if changed:
        tx.many(f"UPDATE usage_records SET {_UPDATE} WHERE key = :key", changed)


def _places(tx: Tx, agent_id: str, times: Iterable[str]) -> _Place:
    """Return a function from a time to the mission and the sortie that an agent was at then."""
    ordered = sorted(times)
    end = position(tx)
    first = position_before(tx, ordered[0], end)
    before = tx.all(
        "SELECT timestamp, mission_id FROM events WHERE agent_id = :agent AND seq <= :first"
        " ORDER BY seq DESC LIMIT 1",
        agent=agent_id,
        first=first,
    )
    events = tx.all(
        "SELECT timestamp, mission_id FROM events WHERE agent_id = :agent AND seq > :first"
        " AND timestamp <= :last ORDER BY seq LIMIT :most",
        agent=agent_id,
        first=first,
        last=ordered[-1],
        most=EVENTS,
    )
    moves = [*before, *events]
    now: str | None = tx.value("SELECT mission_id FROM agents WHERE id = :id", id=agent_id)
    moments = [row["timestamp"] for row in moves]
    missions = {now, *(row["mission_id"] for row in moves)} - {None}
    sorties = [row for mission in missions for row in _sorties(tx, agent_id, mission)]

    first_mission = next((row["mission_id"] for row in moves if row["mission_id"]), now)

    def place(at: str) -> tuple[str | None, str | None]:
        index = bisect_right(moments, at)
        # Requests before the first hook belong to the first mission.
        mission = moves[index - 1]["mission_id"] if index else first_mission
        under_way = [
            row
            for row in sorties
            if row["mission_id"] == mission
            and row["started_at"] <= at
            and (row["completed_at"] is None or at <= row["completed_at"])
        ]
        latest = max(under_way, key=lambda row: str(row["started_at"]), default=None)
        return mission, latest["id"] if latest else None

    return place


def _sorties(tx: Tx, agent_id: str, mission_id: str | None) -> list[Row]:
    return tx.all(
        "SELECT id, mission_id, started_at, completed_at FROM sorties"
        " WHERE mission_id = :mission AND assigned_to = :agent AND started_at IS NOT NULL",
        mission=mission_id,
        agent=agent_id,
    )


@frees_space
def drop_old(tx: Tx, ctx: Context) -> int:
    """Remove some records past ``retention.usage_days``, the oldest first; return how many."""
    rows = tx.all(
        "DELETE FROM usage_records WHERE key IN (SELECT key FROM usage_records WHERE at < :old"
        " ORDER BY at, key LIMIT :most) RETURNING key",
        old=kept_since(ctx),
        most=ctx.batches.rows,
    )
    return len(rows)
