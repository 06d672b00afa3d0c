"""Names from hooks: the last event of each kind, and names that no adapter knows.

For each harness and kind, 64 names of 64 characters are kept. Further names count under the empty
name. Unknown names are deleted a week after they were last reported.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec

from ..core.context import Context
from ..core.registry import frees_space
from ..core.tx import Row, Tx

SightingKind = Literal["event", "unknown_event", "unknown_field", "unfit"]
NAMES, NAME_CHARS, HARNESSES = 64, 64, 64
OTHERS = ""
KEPT_MS = 7 * 86_400_000
SESSIONS = 1_000


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """How often a harness reported a name, and when last (ISO 8601 UTC)."""

    harness: str
    kind: SightingKind
    name: str
    number: int
    last_at: str


def add_sightings(tx: Tx, ctx: Context, seen: Sequence[Sighting]) -> None:
    """Count what was seen since the last time, within the bounds."""
    harnesses = {row["harness"] for row in tx.all("SELECT DISTINCT harness FROM hook_names")}
    by_list: defaultdict[tuple[str, SightingKind], list[Sighting]] = defaultdict(list)
    for each in seen:
        by_list[each.harness, each.kind].append(each)
    for (harness, kind), sightings in by_list.items():
        if harness not in harnesses and len(harnesses) >= HARNESSES:
            continue
        harnesses.add(harness)
        rows = tx.all(
            "SELECT name FROM hook_names WHERE harness = :harness AND kind = :kind",
            harness=harness,
            kind=kind,
        )
        known = {row["name"] for row in rows} | {OTHERS}
        for each in sightings:
            if each.name not in known and len(known) <= NAMES:
                known.add(each.name)
            _add(tx, each, each.name if each.name in known else OTHERS)


def _add(tx: Tx, seen: Sighting, name: str) -> None:
    tx.run(
        "INSERT INTO hook_names (harness, kind, name, number, last_at)"
        " VALUES (:harness, :kind, :name, :number, :last_at)"
        " ON CONFLICT (harness, kind, name) DO UPDATE SET"
        " number = hook_names.number + excluded.number, last_at = excluded.last_at",
        harness=seen.harness,
        kind=seen.kind,
        name=name,
        number=seen.number,
        last_at=seen.last_at,
    )


def list_sightings(tx: Tx, ctx: Context) -> list[Row]:
    """Return every stored name: known events, and names that were unknown within a week."""
    return tx.all(
        "SELECT harness, kind, name, number, last_at FROM hook_names"
        " WHERE kind = 'event' OR last_at >= :since ORDER BY harness, kind, name",
        since=ctx.at(-KEPT_MS),
    )


@frees_space
def prune_sightings(tx: Tx, ctx: Context) -> bool:
    """Delete unknown names that were not reported for a week; return whether there were any."""
    dropped = tx.one(
        "DELETE FROM hook_names WHERE kind <> 'event' AND last_at < :old RETURNING name",
        old=ctx.at(-KEPT_MS),
    )
    return dropped is not None


def silent_sessions(
    tx: Tx, ctx: Context, harness: str, reported_at: str | None
) -> tuple[int, str | None]:
    """Return how many sessions began since a harness reported more, and when the first did.

    ``reported_at`` is when a session last reported more than its beginning or its end. Sessions of
    the last week count, up to 1,000.
    """
    row = tx.one(
        "SELECT count(*) AS number, min(started_at) AS since FROM (SELECT started_at FROM sessions"
        " WHERE harness = :harness AND subagent = '' AND started_at > :after"
        " ORDER BY started_at LIMIT :most) AS begun",
        harness=harness,
        after=max(reported_at or "", ctx.at(-KEPT_MS)),
        most=SESSIONS,
    )
    return (row["number"], row["since"]) if row else (0, None)
