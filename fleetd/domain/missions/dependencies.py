"""Dependencies of sorties: which sorties of the same mission have to be completed first."""

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from ...protocol.errors import InvalidParams
from ...protocol.records import Sortie
from ...protocol.types import CLOSED_SORTIE
from ..core.changes import sortie_changed
from ..core.ids import find
from ..core.tx import Row, Tx

_encode = msgspec.json.Encoder().encode
_ids = msgspec.json.Decoder(list[str]).decode


def as_json(sortie_ids: Sequence[str]) -> str:
    """Return ids as their column holds them."""
    return _encode(sortie_ids).decode()


def of_row(row: Row) -> list[str]:
    """Return the ids that a sortie depends on, from its row."""
    return _ids(row["depends_on_json"])


def of_mission(tx: Tx, mission_id: str) -> dict[str, list[str]]:
    """Return the dependencies of a mission's sorties, by id; sorties without any are left out."""
    rows = tx.tuples(
        "SELECT id, depends_on_json FROM sorties WHERE mission_id = :mission"
        " AND depends_on_json <> '[]'",
        mission=mission_id,
    )
    return {sortie_id: _ids(text) for sortie_id, text in rows}


def checked(tx: Tx, mission_id: str, sortie_id: str | None, wanted: Iterable[str]) -> list[str]:
    """Return the ids that a sortie is to depend on, each once.

    ``sortie_id`` is None for a new sortie: nothing depends on it yet. Raises NotFound for an
    unknown id, InvalidParams for a sortie of another mission and for a cycle.
    """
    ids = []
    for each in dict.fromkeys(wanted):
        row = find(tx, "sortie", each)
        if row["mission_id"] != mission_id:
            raise InvalidParams(
                f"Sortie {row['id']} is in mission {row['mission_id']}. A sortie can only"
                f" depend on sorties of mission {mission_id}.",
                hint=f"fleetctl sortie list --mission {mission_id} shows them.",
                field="depends_on",
            )
        ids.append(row["id"])
    ids = list(dict.fromkeys(ids))
    if sortie_id and (cycle := cycle_of(of_mission(tx, mission_id), sortie_id, ids)):
        chain = " -> ".join(cycle)
        raise InvalidParams(
            f"These sorties would wait for each other: {chain}.",
            hint="Remove one of the dependencies: fleetctl sortie update ID --no-after",
            field="depends_on",
            cycle=cycle,
        )
    return ids


def cycle_of(
    known: Mapping[str, Sequence[str]], sortie_id: str, wanted: Sequence[str]
) -> list[str] | None:
    """Return the cycle that a sortie's new dependencies would close, from the sortie back to it."""
    came_from: dict[str, str] = {}
    look = [(each, sortie_id) for each in reversed(wanted)]
    while look:
        here, before = look.pop()
        if here in came_from:
            continue
        came_from[here] = before
        if here == sortie_id:
            path = [here]
            while len(path) == 1 or path[-1] != sortie_id:
                path.append(came_from[path[-1]])
            return path[::-1]
        look += [(each, here) for each in reversed(known.get(here, ()))]
    return None


def drop(tx: Tx, mission_id: str, gone: Container[str]) -> dict[str, list[str]]:
    """Drop dependencies on sorties that are no longer in the mission; return what changed."""
    changed = {}
    for sortie_id, ids in of_mission(tx, mission_id).items():
        left = [each for each in ids if each not in gone]
        if left != ids:
            changed[sortie_id] = left
    write(tx, mission_id, changed)
    return changed


def drop_outside(tx: Tx, mission_id: str) -> dict[str, list[str]]:
    """Drop dependencies on sorties that the mission does not have; return what changed."""
    known = of_mission(tx, mission_id)
    if not known:
        return {}
    rows = tx.tuples("SELECT id FROM sorties WHERE mission_id = :mission", mission=mission_id)
    there = {sortie_id for (sortie_id,) in rows}
    return drop(tx, mission_id, {each for ids in known.values() for each in ids} - there)


def write(tx: Tx, mission_id: str, changed: Mapping[str, Sequence[str]]) -> None:
    """Write the dependencies of a mission's sorties."""
    if not changed:
        return
    for sortie_id, ids in changed.items():
        sortie_changed(tx, mission_id, sortie_id, {"depends_on": ids})
    tx.many(
        "UPDATE sorties SET depends_on_json = :ids WHERE id = :id",
        [{"id": sortie_id, "ids": as_json(ids)} for sortie_id, ids in changed.items()],
    )


def is_ready(sortie: Sortie) -> bool:
    """Return whether a sortie can be worked on: open, not blocked, and waiting for no other."""
    is_open = sortie.status not in CLOSED_SORTIE and sortie.status != "blocked"
    return is_open and not sortie.waits_for
