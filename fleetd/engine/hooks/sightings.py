"""Sightings: counts from hooks, written in batches and returned with the status of each harness.

A timer writes the counts. They are also written before a request reads them, and when the daemon
stops. A crash loses the counts of half a minute.
"""

from collections import defaultdict

from ...domain.sessions import sightings
from ...domain.sessions.deliveries import hook_counts
from ...domain.sessions.sightings import OTHERS
from ...harness.detect import ADAPTERS
from ...protocol.errors import FleetError
from ...protocol.requests.hook import HarnessStatus, HeardEvent, UnknownKind, UnknownName
from ..engine import Engine

_KINDS: dict[str, UnknownKind] = {
    "unknown_event": "event",
    "unknown_field": "field",
    "unfit": "payload",
}


async def write_sightings(engine: Engine) -> None:
    """Write the counts since the last write; if the store refuses, keep them for the next one."""
    seen = engine.sightings.take()
    if not seen:
        return
    try:
        await engine.write(sightings.add_sightings, seen)
    except FleetError:
        engine.sightings.put_back(seen)


async def harness_statuses(engine: Engine) -> list[HarnessStatus]:
    """Return what came from each harness, in the order of their names."""
    await write_sightings(engine)
    events: defaultdict[str, list[HeardEvent]] = defaultdict(list)
    unknown: defaultdict[str, list[UnknownName]] = defaultdict(list)
    for row in await engine.read(sightings.list_sightings):
        harness = row.pop("harness")
        if row["kind"] == "event":
            event = HeardEvent(event=row["name"], count=row["number"], last_at=row["last_at"])
            events[harness].append(event)
        elif not _is_known(harness, row["kind"], row["name"]):
            kind, name, count = _KINDS[row["kind"]], row["name"], row["number"]
            found = UnknownName(kind=kind, name=name, count=count, last_at=row["last_at"])
            unknown[harness].append(found)
    return [
        HarnessStatus(
            **row,
            **engine.session_queue.timing(row["harness"]),
            events=sorted(events[row["harness"]], key=lambda each: each.last_at, reverse=True),
            unknown=sorted(unknown[row["harness"]], key=lambda each: (-each.count, each.name)),
        )
        for row in await engine.read(hook_counts)
    ]


def _is_known(harness: str, kind: str, name: str) -> bool:
    """Return whether the adapter now knows a name that an earlier version did not know."""
    adapter = ADAPTERS.get(harness)
    if adapter is None or kind == "unfit" or name == OTHERS:
        return False
    known = adapter.known_events if kind == "unknown_event" else adapter.known_fields
    return known is not None and name in known
