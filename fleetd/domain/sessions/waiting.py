"""Sorties that wait for an item of a plan to stand for them; must not change any."""

from collections import defaultdict, deque

import msgspec

from ...harness.report import PlanItem
from ...protocol.display import short
from ..core.tx import Row, Tx
from . import plan_rows
from .plan_matching import TEXT_CHARS, Told, is_new_under_old_id, plain


class Waiting:
    """Sorties of the mission that an item may stand for, each once."""

    def __init__(self, tx: Tx, mission_id: str, agent_id: str, given_up: str) -> None:
        self._agent_id = agent_id
        self._used: set[str] = set()
        self._by_id: dict[str, Row] = {}
        self._by_text: dict[tuple[str, bool], deque[Row]] = defaultdict(deque)
        for row in plan_rows.takeable(tx, mission_id, agent_id, given_up):
            if row["agent_id"] == agent_id and row["item_id"]:
                self._by_id[row["item_id"]] = row
            over = row["status"] == "completed"
            self._by_text[plain(_text(row)), over].append(row)

    def take(self, item: PlanItem) -> Told | None:
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


def _dropped(row: Row) -> Told:
    return Told(
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
