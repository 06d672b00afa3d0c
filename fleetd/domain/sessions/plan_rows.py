"""What a plan told last, item by item, and which sorties wait for an item to stand for them."""

from collections import defaultdict, deque
from collections.abc import Iterable

import msgspec

from ...harness.report import PlanItem
from ...protocol.display import short
from ..core.tx import Row, Tx
from .plan_matching import TEXT_CHARS, KnownItem, is_new_under_old_id, plain


def told_before(tx: Tx, mission_id: str, agent_id: str) -> list[KnownItem]:
    """Return the items that a plan names, in its order."""
    rows = tx.all(
        "SELECT * FROM plan_items WHERE agent_id = :agent AND mission_id = :mission"
        " AND status <> 'dropped' ORDER BY position, sortie_id",
        agent=agent_id,
        mission=mission_id,
    )
    return [
        KnownItem(
            sortie_id=row["sortie_id"],
            item_id=row["item_id"],
            text=row["text"],
            told=row["status"],
            position=row["position"],
            made=bool(row["made"]),
        )
        for row in rows
    ]


def keep(tx: Tx, mission_id: str, agent_id: str, told: KnownItem) -> None:
    """Write down what a plan says of an item; what was another plan's item is this one's now."""
    tx.run(
        "INSERT INTO plan_items (sortie_id, mission_id, agent_id, item_id, position, text, status,"
        " made) VALUES (:sortie, :mission, :agent, :item, :position, :text, :status, :made)"
        " ON CONFLICT (sortie_id) DO UPDATE SET mission_id = excluded.mission_id,"
        " agent_id = excluded.agent_id, item_id = excluded.item_id,"
        " position = excluded.position, text = excluded.text, status = excluded.status,"
        " made = excluded.made",
        sortie=told.sortie_id,
        mission=mission_id,
        agent=agent_id,
        item=told.item_id,
        position=told.position,
        text=told.text,
        status=told.told,
        made=int(told.made),
    )


def take_id(tx: Tx, mission_id: str, agent_id: str, told: KnownItem) -> None:
    """Let an item be the only one of its plan that goes by its id; harnesses use ids again."""
    tx.run(
        "UPDATE plan_items SET item_id = NULL WHERE agent_id = :agent AND mission_id = :mission"
        " AND item_id = :item AND sortie_id <> :sortie",
        agent=agent_id,
        mission=mission_id,
        item=told.item_id,
        sortie=told.sortie_id,
    )


def forget(tx: Tx, sortie_id: str) -> None:
    """Let no item stand for a sortie any more."""
    tx.run("DELETE FROM plan_items WHERE sortie_id = :id", id=sortie_id)


def mark_dirty(tx: Tx, sortie_ids: Iterable[str]) -> None:
    """Have the plan's next word about sorties count, also if it is the same as the last.

    For those who change sorties behind the plan's back, such as a recovery. What the plan had
    dropped is back then, until the plan speaks.
    """
    tx.many(
        "UPDATE plan_items SET status = CASE WHEN status IN ('dropped', 'back') THEN 'back'"
        " ELSE '' END WHERE sortie_id = :id",
        [{"id": sortie_id} for sortie_id in sortie_ids],
    )


def places(tx: Tx, mission_id: str, agent_id: str) -> list[tuple[str, int]]:
    """Return the sorties that a plan made, in its order, and where they stand in their mission."""
    rows = tx.all(
        "SELECT s.id, s.position FROM plan_items p JOIN sorties s ON s.id = p.sortie_id"
        " AND s.mission_id = p.mission_id"
        " WHERE p.agent_id = :agent AND p.mission_id = :mission AND p.status <> 'dropped'"
        " AND p.made = 1 AND (s.assigned_to IS NULL OR s.assigned_to = :agent)"
        " ORDER BY p.position, p.sortie_id",
        agent=agent_id,
        mission=mission_id,
    )
    return [(row["id"], row["position"]) for row in rows]


def takeable(tx: Tx, mission_id: str, agent_id: str, given_up: str) -> list[Row]:
    """Return sorties that an item of the plan may stand for, though the plan named none of them.

    They are nobody's or the agent's own: somebody made them, another agent left them, or the plan
    dropped them; then one that failed for the reason ``given_up`` counts too.
    """
    return tx.all(
        "SELECT s.id, s.title, s.status, p.agent_id, p.item_id, p.text, p.made FROM sorties s"
        " LEFT JOIN plan_items p ON p.sortie_id = s.id WHERE s.mission_id = :mission"
        " AND (s.assigned_to IS NULL OR s.assigned_to = :agent)"
        " AND (s.status <> 'failed' OR s.blocked_reason = :given_up)"
        " AND (p.sortie_id IS NULL OR p.agent_id <> :agent OR p.status = 'dropped')"
        " ORDER BY s.position",
        mission=mission_id,
        agent=agent_id,
        given_up=given_up,
    )


class FreeSorties:
    """Sorties of the mission that an item may stand for, each once."""

    def __init__(self, tx: Tx, mission_id: str, agent_id: str, given_up: str) -> None:
        self._agent_id = agent_id
        self._used: set[str] = set()
        self._by_id: dict[str, Row] = {}
        self._by_text: dict[tuple[str, bool], deque[Row]] = defaultdict(deque)
        for row in takeable(tx, mission_id, agent_id, given_up):
            if row["agent_id"] == agent_id and row["item_id"]:
                self._by_id[row["item_id"]] = row
            over = row["status"] == "completed"
            self._by_text[plain(_text(row)), over].append(row)

    def take(self, item: PlanItem) -> KnownItem | None:
        """Return what stands for an item from now on.

        The plan's own item that comes back, by its id; else a sortie of the same text: one that is
        over for an item that is over, else one that is open.
        """
        row = self._by_id.get(item.id) if item.id else None
        if row and (row["id"] in self._used or is_new_under_old_id(_dropped(row), item)):
            row = None
        for over in (True, False) if item.status == "completed" else (False,):
            equal = self._by_text[plain(item.text), over] if item.text else deque[Row]()
            while row is None and equal:
                row = equal.popleft()
                row = None if row["id"] in self._used else row
        if row is None:
            return None
        self._used.add(row["id"])
        return msgspec.structs.replace(_dropped(row), told=_said_by(row, self._agent_id))


def _text(row: Row) -> str:
    return str(row["text"] or short(row["title"], TEXT_CHARS))


def _dropped(row: Row) -> KnownItem:
    return KnownItem(
        sortie_id=row["id"],
        item_id=None,
        text=_text(row),
        told="dropped",
        position=0,
        made=bool(row["made"]),
    )


def _said_by(row: Row, agent_id: str) -> str:
    """Return what a plan that takes a sortie has said of it: what its own plan dropped, or nothing.

    A sortie that somebody began for this agent does not go back because a plan names it.
    """
    return "dropped" if row["agent_id"] == agent_id else "pending"
