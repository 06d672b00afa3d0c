"""A harness's own plan becomes the sorties of its agent.

A plan speaks when it changes: what it repeats is not heard, so that nobody's word about a sortie is
taken back by a list that is sent again. Progress never overshoots on the way from one list to the
next: what is added, opened again or dropped comes before what is completed.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ...harness.report import PlanItem, Planned
from ...protocol.requests.mission import NewSortie
from ...protocol.requests.sortie import SortieAssign, SortieComplete, SortieFail, SortieStart
from ...protocol.types import CLOSED_SORTIE, OPEN_MISSION
from ..core.context import Context
from ..core.tx import LogLine, Row, Tx
from ..missions import sorties
from ..snapshots import triggers
from ..snapshots.plan_steps import DROPPED
from . import plan_rows
from .plan_matching import (
    BACK,
    DIRTY,
    MOST_ITEMS,
    KnownItem,
    in_part,
    in_whole,
    updates,
    whole_list,
)
from .plan_rows import FreeSorties


def follow(tx: Tx, ctx: Context, mission_id: str, agent_id: str, planned: Planned) -> None:
    """Bring a mission's sorties in line with the plan of an agent; one that is over stays as it is.

    The texts of the plan must have lost their secrets already.
    """
    status = tx.value("SELECT status FROM missions WHERE id = :id", id=mission_id)
    if status not in OPEN_MISSION:
        return
    before = plan_rows.told_before(tx, mission_id, agent_id)
    named, beyond = whole_list(planned.items) if planned.whole else (updates(planned.items), 0)
    found = in_whole(before, named) if planned.whole else in_part(before, named)
    going = {told.sortie_id for told in found if told}
    left = [told for told in before if told.sortie_id not in going]
    gone = left if planned.whole else [told for told in left if told.told == BACK]
    gone += [t for t, item in zip(found, named, strict=True) if t and item.status == "dropped"]
    stays = [
        (item, told) for item, told in zip(named, found, strict=True) if item.status != "dropped"
    ]
    plan = _Plan(tx, ctx, mission_id, agent_id)
    steps = plan.resolve(stays, before, whole=planned.whole)
    if plan.bring_in_line(steps, gone) and beyond:
        text = f"The plan of {agent_id} has {beyond} items too many; {MOST_ITEMS} are followed"
        tx.after_commit(LogLine("WARNING", text))


class _Step(msgspec.Struct):
    """What was told of an item before, and what is told now.

    ``fresh`` says that no item stood for its sortie until now.
    """

    was: KnownItem
    now: KnownItem
    fresh: bool = False

    @property
    def moves(self) -> bool:
        """Whether the plan says something new of how far the sortie is."""
        return self.fresh or self.was.told != self.now.told

    @property
    def changed(self) -> bool:
        """Whether the plan says anything new of the item."""
        return self.fresh or self.was != self.now


class _Plan:
    """The plan of one agent in one mission, within one transaction."""

    def __init__(self, tx: Tx, ctx: Context, mission_id: str, agent_id: str) -> None:
        self._tx, self._ctx = tx, ctx
        self._mission_id, self._agent_id = mission_id, agent_id
        self._waiting: FreeSorties | None = None

    def resolve(
        self,
        stays: Iterable[tuple[PlanItem, KnownItem | None]],
        before: Sequence[KnownItem],
        *,
        whole: bool,
    ) -> list[_Step]:
        """Find a sortie for every item: its own, one that waits for somebody, or a new one."""
        steps: list[_Step] = []
        room = MOST_ITEMS if whole else MOST_ITEMS - len(before)
        end = 0 if whole else max((told.position for told in before), default=-1) + 1
        for number, (item, known) in enumerate(stays):
            told = known if known and self._stands(known, item) else None
            fresh = told is None
            if told is None:
                told = self._sortie_for(item, known, room)
                room -= 1
            if told is not None:
                position = end + number if whole or fresh else told.position
                steps.append(_Step(told, _next(told, item, position), fresh))
        return steps

    def _stands(self, told: KnownItem, item: PlanItem) -> bool:
        """Whether an item has its sortie still, or somebody removed it and nothing new is said."""
        return told.told == item.status or self._row(told.sortie_id) is not None

    def _row(self, sortie_id: str) -> Row | None:
        """Return the row of a sortie of this mission.

        What was finished before the session moved here stays where it was done.
        """
        return self._tx.one(
            "SELECT * FROM sorties WHERE id = :id AND mission_id = :mission",
            id=sortie_id,
            mission=self._mission_id,
        )

    def _in_hand(self, sortie_id: str) -> Row | None:
        """Return the row of a sortie that is there and is not another agent's."""
        row = self._row(sortie_id)
        return row if row and row["assigned_to"] in (None, self._agent_id) else None

    def _sortie_for(self, item: PlanItem, known: KnownItem | None, room: int) -> KnownItem | None:
        """Return what stands for an item from now on; None where nothing can."""
        if known is not None:
            plan_rows.forget(self._tx, known.sortie_id)
            item = msgspec.structs.replace(item, text=item.text or known.text)
        if self._waiting is None:
            self._waiting = FreeSorties(self._tx, self._mission_id, self._agent_id, DROPPED)
        if (taken := self._waiting.take(item)) or not item.text or room <= 0:
            return taken
        new = NewSortie(title=item.text, assigned_to=self._agent_id)
        sortie = sorties.add(self._tx, self._ctx, self._mission_id, new, by=self._agent_id)
        return KnownItem(
            sortie_id=sortie.id, item_id=item.id, text=item.text, told="", position=0, made=True
        )

    def bring_in_line(self, steps: Sequence[_Step], gone: Sequence[KnownItem]) -> bool:
        """Change what the plan says is different; returns whether anything was."""
        moving = [step for step in steps if step.moves]
        told = [*(step.now.sortie_id for step in moving), *(each.sortie_id for each in gone)]
        before = triggers.standing(self._tx, self._agent_id, told)
        self._carry_out(steps, moving, gone)
        triggers.steps_moved(self._tx, self._ctx, self._agent_id, before)
        return bool(gone or any(step.changed for step in steps))

    def _carry_out(
        self, steps: Sequence[_Step], moving: Sequence[_Step], gone: Sequence[KnownItem]
    ) -> None:
        for step in moving:
            self._go_back(step)
        for told in gone:
            self._drop(told)
        changed = [step for step in steps if step.changed]
        for step in changed:
            if step.was.text != step.now.text:
                self._reword(step.now)
            plan_rows.keep(self._tx, self._mission_id, self._agent_id, step.now)
        for step in changed:
            if step.now.item_id and (step.fresh or step.was.item_id != step.now.item_id):
                plan_rows.take_id(self._tx, self._mission_id, self._agent_id, step.now)
        if any(step.fresh or step.was.position != step.now.position for step in changed):
            self._put_in_order()
        # What begins comes first: the checkpoint of a milestone has it under way already.
        for step in moving:
            self._start(step.now)
        for step in moving:
            self._complete(step.now)

    def _go_back(self, step: _Step) -> None:
        """Open again what the plan had over or under way and has to do now.

        What somebody else closed stays closed.
        """
        row = self._in_hand(step.now.sortie_id)
        if row is None:
            return
        was, wanted = step.was.told, step.now.told
        heard = was in ("completed", "dropped", *DIRTY)
        undone = row["status"] == "completed" and wanted != "completed" and heard
        taken_up = row["status"] == "failed" and row["blocked_reason"] == DROPPED
        put_back = row["status"] == "in_progress" and wanted == "pending" and was != "pending"
        if undone or taken_up or put_back:
            sorties.reopen(self._tx, self._ctx, row, self._agent_id)
        elif row["status"] == "pending" and wanted == "pending":
            sorties.assign(self._tx, self._ctx, SortieAssign(row["id"], self._agent_id))

    def _drop(self, told: KnownItem) -> None:
        """Take away what the plan made and nobody began; give up what was begun and is open."""
        row = self._in_hand(told.sortie_id)
        if row and told.made and row["status"] not in CLOSED_SORTIE:
            if row["status"] in ("pending", "assigned") and not row["started_at"]:
                sorties.take_out(self._tx, self._ctx, row, self._agent_id)
            else:
                request = SortieFail(row["id"], DROPPED, self._agent_id)
                sorties.fail(self._tx, self._ctx, request)
        gone = msgspec.structs.replace(told, told="dropped")
        plan_rows.keep(self._tx, self._mission_id, self._agent_id, gone)

    def _reword(self, now: KnownItem) -> None:
        row = self._in_hand(now.sortie_id)
        if row and now.made and row["title"] != now.text:
            sorties.retitle(self._tx, self._ctx, row, now.text, self._agent_id)

    def _put_in_order(self) -> None:
        """Let the sorties that the plan made follow its order, in the places that they have."""
        have = plan_rows.places(self._tx, self._mission_id, self._agent_id)
        for (sortie_id, now), place in zip(have, sorted(now for _, now in have), strict=True):
            if now != place:
                self._tx.run(
                    "UPDATE sorties SET position = :place WHERE id = :id", place=place, id=sortie_id
                )

    def _complete(self, now: KnownItem) -> None:
        row = self._in_hand(now.sortie_id) if now.told == "completed" else None
        if row is None or row["status"] in CLOSED_SORTIE:
            return
        if row["status"] in ("pending", "assigned"):
            sorties.start(self._tx, self._ctx, SortieStart(row["id"], self._agent_id))
        request = SortieComplete(row["id"], agent_id=self._agent_id)
        sorties.complete(self._tx, self._ctx, request)

    def _start(self, now: KnownItem) -> None:
        row = self._in_hand(now.sortie_id) if now.told == "in_progress" else None
        if row and row["status"] in ("pending", "assigned", "blocked"):
            sorties.start(self._tx, self._ctx, SortieStart(row["id"], self._agent_id))


def _next(told: KnownItem, item: PlanItem, position: int) -> KnownItem:
    return KnownItem(
        sortie_id=told.sortie_id,
        item_id=item.id or told.item_id,
        text=item.text or told.text,
        told=item.status,
        position=position,
        made=told.made,
    )
