"""Plan syncing: a harness's own plan becomes the sorties of its agent.

Only the changes of a plan count: a list that is sent again must not take back what others said
about a sortie. Progress never overshoots on the way from one list to the next: additions,
reopenings and removals come before completions.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

import msgspec

from ...harness.report import PlanItem, PlanLink, Planned
from ...protocol.display import short
from ...protocol.requests.mission import NewSortie
from ...protocol.requests.sortie import SortieAssign, SortieComplete, SortieFail, SortieStart
from ...protocol.types import CLOSED_SORTIE, OPEN_MISSION
from ..core.changes import sortie_changed
from ..core.context import Context
from ..core.tx import LogLine, Row, Tx
from ..missions import dependencies, sorties
from ..snapshots import triggers
from ..snapshots.plan_steps import DROPPED
from .plan_matching import (
    BACK,
    DIRTY,
    MOST_ITEMS,
    TEXT_CHARS,
    KnownItem,
    is_new_under_old_id,
    items_of_list,
    items_of_updates,
    match_updates,
    match_whole_list,
    normalized,
)


def sync_plan(tx: Tx, ctx: Context, mission_id: str, agent_id: str, planned: Planned) -> None:
    """Bring a mission's sorties in line with an agent's plan; an ended mission stays unchanged.

    The texts of the plan must be free of secrets already.
    """
    status = tx.value("SELECT status FROM missions WHERE id = :id", id=mission_id)
    if status not in OPEN_MISSION:
        return
    rows = tx.all(
        "SELECT sortie_id, item_id, text, status AS told, position, made FROM plan_items"
        " WHERE agent_id = :agent AND mission_id = :mission AND status <> 'dropped'"
        " ORDER BY position, sortie_id",
        agent=agent_id,
        mission=mission_id,
    )
    before = [KnownItem(**row | {"made": bool(row["made"])}) for row in rows]
    named, beyond = (
        items_of_list(planned.items) if planned.whole else (items_of_updates(planned.items), 0)
    )
    found = match_whole_list(before, named) if planned.whole else match_updates(before, named)
    going = {known.sortie_id for known in found if known}
    left = [known for known in before if known.sortie_id not in going]
    gone = left if planned.whole else [known for known in left if known.told == BACK]
    gone += [t for t, item in zip(found, named, strict=True) if t and item.status == "dropped"]
    stays = [
        (item, known) for item, known in zip(named, found, strict=True) if item.status != "dropped"
    ]
    plan = _Plan(tx, ctx, mission_id, agent_id)
    steps = plan.resolve(stays, before, whole=planned.whole)
    changed = plan.bring_in_line(steps, gone)
    if planned.links:
        plan.tie(planned.links)
    if changed and beyond:
        text = f"The plan of {agent_id} has {beyond} items too many; fleetd follows {MOST_ITEMS}"
        tx.after_commit(LogLine("WARNING", text))


class _Step(msgspec.Struct):
    """An item as it was before, and as the plan has it now.

    ``fresh`` means that no item had its sortie until now.
    """

    was: KnownItem
    now: KnownItem
    fresh: bool = False

    @property
    def moves(self) -> bool:
        """Return whether the plan reports new progress of the sortie."""
        return self.fresh or self.was.told != self.now.told

    @property
    def changed(self) -> bool:
        """Return whether the plan reports anything new about the item."""
        return self.fresh or self.was != self.now


class _Plan:
    """The plan of one agent in one mission, within one transaction."""

    def __init__(self, tx: Tx, ctx: Context, mission_id: str, agent_id: str) -> None:
        self._tx, self._ctx = tx, ctx
        self._mission_id, self._agent_id = mission_id, agent_id
        self._free: _FreeSorties | None = None

    def resolve(
        self,
        stays: Iterable[tuple[PlanItem, KnownItem | None]],
        before: Sequence[KnownItem],
        *,
        whole: bool,
    ) -> list[_Step]:
        """Find a sortie for every item: its own, a free one, or a new one."""
        steps: list[_Step] = []
        room = MOST_ITEMS if whole else MOST_ITEMS - len(before)
        end = 0 if whole else max((was.position for was in before), default=-1) + 1
        for number, (item, known) in enumerate(stays):
            was = known
            # It has its sortie still, or somebody removed that and the plan reports nothing new.
            fresh = known is None or not (
                known.told == item.status or self._row(known.sortie_id) is not None
            )
            if fresh:
                was = self._sortie_for(item, known, room)
                room -= 1
            if was is not None:
                now = msgspec.structs.replace(
                    was,
                    item_id=item.id or was.item_id,
                    text=item.text or was.text,
                    told=item.status,
                    position=end + number if whole or fresh else was.position,
                )
                steps.append(_Step(was, now, fresh))
        return steps

    def tie(self, links: Sequence[PlanLink]) -> None:
        """Set dependencies between sorties from the plan; links that close a cycle are skipped."""
        rows = self._tx.tuples(
            "SELECT p.item_id, p.sortie_id FROM plan_items p JOIN sorties s ON s.id = p.sortie_id"
            " AND s.mission_id = p.mission_id WHERE p.agent_id = :agent"
            " AND p.mission_id = :mission AND p.status <> 'dropped' AND p.item_id IS NOT NULL",
            agent=self._agent_id,
            mission=self._mission_id,
        )
        sortie_of = dict(rows)
        known = dependencies.of_mission(self._tx, self._mission_id)
        before = {sortie_id: [*ids] for sortie_id, ids in known.items()}
        for link in links:
            item, on = sortie_of.get(link.item), sortie_of.get(link.on)
            if item is None or on is None:
                continue
            ids = known.get(item, [])
            if link.ends:
                known[item] = [each for each in ids if each != on]
            elif cycle := dependencies.cycle_of(known, item, [on]):
                problem = f"The plan of {self._agent_id} has sorties wait for each other"
                ring = " -> ".join(cycle)
                self._tx.after_commit(LogLine("WARNING", f"{problem}; fleetd ignores it: {ring}"))
            elif on not in ids:
                known[item] = [*ids, on]
        for sortie_id, ids in known.items():
            row = self._row(sortie_id) if ids != before.get(sortie_id, []) else None
            if row and row["status"] not in CLOSED_SORTIE:
                sorties.depend_on(self._tx, self._ctx, row, ids, self._agent_id)

    def _row(self, sortie_id: str) -> Row | None:
        """Return the row of a sortie of this mission.

        Work that was finished before the session moved here stays in its old mission.
        """
        return self._tx.one(
            "SELECT * FROM sorties WHERE id = :id AND mission_id = :mission",
            id=sortie_id,
            mission=self._mission_id,
        )

    def _in_hand(self, sortie_id: str) -> Row | None:
        """Return the row of a sortie that exists and is not another agent's."""
        row = self._row(sortie_id)
        return row if row and row["assigned_to"] in (None, self._agent_id) else None

    def _sortie_for(self, item: PlanItem, known: KnownItem | None, room: int) -> KnownItem | None:
        """Return a sortie for an item from now on, as an item; None if there can be none."""
        if known is not None:
            self._tx.run("DELETE FROM plan_items WHERE sortie_id = :id", id=known.sortie_id)
            item = msgspec.structs.replace(item, text=item.text or known.text)
        if self._free is None:
            self._free = _FreeSorties(self._tx, self._mission_id, self._agent_id)
        if (taken := self._free.take(item)) or not item.text or room <= 0:
            return taken
        new = NewSortie(title=item.text, assigned_to=self._agent_id)
        sortie = sorties.add(self._tx, self._ctx, self._mission_id, new, by=self._agent_id)
        return KnownItem(
            sortie_id=sortie.id, item_id=item.id, text=item.text, told="", position=0, made=True
        )

    def bring_in_line(self, steps: Sequence[_Step], gone: Sequence[KnownItem]) -> bool:
        """Apply the changes of the plan; return whether there were any."""
        moving = [step for step in steps if step.moves]
        changed = [step for step in steps if step.changed]
        sortie_ids = [*(step.now.sortie_id for step in moving), *(each.sortie_id for each in gone)]
        before = triggers.step_progress(self._tx, self._agent_id, sortie_ids)
        self._carry_out(changed, moving, gone)
        triggers.on_steps_changed(self._tx, self._ctx, self._agent_id, before)
        return bool(gone or changed)

    def _carry_out(
        self, changed: Sequence[_Step], moving: Sequence[_Step], gone: Sequence[KnownItem]
    ) -> None:
        for step in moving:
            self._go_back(step)
        for known in gone:
            self._drop(known)
        for step in changed:
            if step.was.text != step.now.text:
                self._reword(step.now)
            self._keep(step.now)
        for step in changed:
            if step.now.item_id and (step.fresh or step.was.item_id != step.now.item_id):
                # Harnesses reuse ids: this item is the only one of its plan with this id now.
                self._tx.run(
                    "UPDATE plan_items SET item_id = NULL WHERE agent_id = :agent"
                    " AND mission_id = :mission AND item_id = :item AND sortie_id <> :sortie",
                    agent=self._agent_id,
                    mission=self._mission_id,
                    item=step.now.item_id,
                    sortie=step.now.sortie_id,
                )
        if any(step.fresh or step.was.position != step.now.position for step in changed):
            self._put_in_order()
        # Sorties start before others complete: a milestone's checkpoint has them in progress.
        for step in moving:
            self._start(step.now)
        for step in moving:
            self._complete(step.now)

    def _go_back(self, step: _Step) -> None:
        """Reopen a sortie that the plan had finished or in progress and has to do now.

        A sortie that somebody else closed stays closed.
        """
        row = self._in_hand(step.now.sortie_id)
        if row is None:
            return
        was, wanted = step.was.told, step.now.told
        plan_decides = was in ("completed", "dropped", *DIRTY)
        undone = row["status"] == "completed" and wanted != "completed" and plan_decides
        taken_up = row["status"] == "failed" and row["blocked_reason"] == DROPPED
        put_back = row["status"] == "in_progress" and wanted == "pending" and was != "pending"
        if undone or taken_up or put_back:
            sorties.reopen(self._tx, self._ctx, row, self._agent_id)
        elif row["status"] == "pending" and wanted == "pending":
            sorties.assign(self._tx, self._ctx, SortieAssign(row["id"], self._agent_id))

    def _drop(self, known: KnownItem) -> None:
        """Delete a sortie that the plan made and nobody began; fail one that is in progress."""
        row = self._in_hand(known.sortie_id)
        if row and known.made and row["status"] not in CLOSED_SORTIE:
            if row["status"] in ("pending", "assigned") and not row["started_at"]:
                sorties.delete_sortie(self._tx, self._ctx, row, self._agent_id)
            else:
                request = SortieFail(row["id"], DROPPED, self._agent_id)
                sorties.fail(self._tx, self._ctx, request)
        self._keep(msgspec.structs.replace(known, told="dropped"))

    def _reword(self, now: KnownItem) -> None:
        row = self._in_hand(now.sortie_id)
        if row and now.made and row["title"] != now.text:
            sorties.retitle(self._tx, self._ctx, row, now.text, self._agent_id)

    def _keep(self, known: KnownItem) -> None:
        """Store what the plan says of an item; an item of another plan becomes this plan's."""
        self._tx.run(
            "INSERT INTO plan_items (sortie_id, mission_id, agent_id, item_id, position, text,"
            " status, made)"
            " VALUES (:sortie_id, :mission, :agent, :item_id, :position, :text, :told, :made)"
            " ON CONFLICT (sortie_id) DO UPDATE SET mission_id = excluded.mission_id,"
            " agent_id = excluded.agent_id, item_id = excluded.item_id,"
            " position = excluded.position, text = excluded.text, status = excluded.status,"
            " made = excluded.made",
            mission=self._mission_id,
            agent=self._agent_id,
            **msgspec.structs.asdict(known) | {"made": int(known.made)},
        )

    def _put_in_order(self) -> None:
        """Put the sorties that the plan made in its order, within the places that they have."""
        have = self._tx.all(
            "SELECT s.id, s.position FROM plan_items p JOIN sorties s ON s.id = p.sortie_id"
            " AND s.mission_id = p.mission_id"
            " WHERE p.agent_id = :agent AND p.mission_id = :mission AND p.status <> 'dropped'"
            " AND p.made = 1 AND (s.assigned_to IS NULL OR s.assigned_to = :agent)"
            " ORDER BY p.position, p.sortie_id",
            agent=self._agent_id,
            mission=self._mission_id,
        )
        for row, place in zip(have, sorted(row["position"] for row in have), strict=True):
            if row["position"] != place:
                self._tx.run(
                    "UPDATE sorties SET position = :place WHERE id = :id", place=place, id=row["id"]
                )
                sortie_changed(self._tx, self._mission_id, row["id"], {"position": place})

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


def invalidate_plan_items(tx: Tx, sortie_ids: Iterable[str]) -> None:
    """Make the plan's next word about sorties count, even if it repeats the last one.

    This is for code that changes sorties without the plan, such as a recovery. An item that the
    plan had dropped is then back, until the plan's next word.
    """
    tx.many(
        "UPDATE plan_items SET status = CASE WHEN status IN ('dropped', 'back') THEN 'back'"
        " ELSE '' END WHERE sortie_id = :id",
        [{"id": sortie_id} for sortie_id in sortie_ids],
    )


class _FreeSorties:
    """Sorties that an item of the plan may take, though the plan named none of them.

    They are unassigned or the agent's own: somebody made them, another agent left them, or the
    plan dropped them. Each is taken once.
    """

    def __init__(self, tx: Tx, mission_id: str, agent_id: str) -> None:
        self._agent_id = agent_id
        self._used: set[str] = set()
        self._by_id: dict[str, Row] = {}
        self._by_text: dict[tuple[str, bool], deque[Row]] = defaultdict(deque)
        rows = tx.all(
            "SELECT s.id, s.title, s.status, p.agent_id, p.item_id, p.text, p.made FROM sorties s"
            " LEFT JOIN plan_items p ON p.sortie_id = s.id WHERE s.mission_id = :mission"
            " AND (s.assigned_to IS NULL OR s.assigned_to = :agent)"
            " AND (s.status <> 'failed' OR s.blocked_reason = :given_up)"
            " AND (p.sortie_id IS NULL OR p.agent_id <> :agent OR p.status = 'dropped')"
            " ORDER BY s.position",
            mission=mission_id,
            agent=agent_id,
            given_up=DROPPED,
        )
        for row in rows:
            if row["agent_id"] == agent_id and row["item_id"]:
                self._by_id[row["item_id"]] = row
            over = row["status"] == "completed"
            self._by_text[normalized(_text(row)), over].append(row)

    def take(self, item: PlanItem) -> KnownItem | None:
        """Return the sortie of an item from now on, as an item.

        The plan's own item that comes back is first, by its id. A sortie of the same text is next:
        a finished one for a finished item, else an open one.
        """
        row = self._by_id.get(item.id) if item.id else None
        if row and (row["id"] in self._used or is_new_under_old_id(_dropped(row), item)):
            row = None
        for over in (True, False) if item.status == "completed" else (False,):
            equal = self._by_text[normalized(item.text), over] if item.text else deque[Row]()
            while row is None and equal:
                row = equal.popleft()
                row = None if row["id"] in self._used else row
        if row is None:
            return None
        self._used.add(row["id"])
        # This plan's own item was dropped. Another sortie, which somebody began for this agent,
        # does not go back because the plan names it.
        status = "dropped" if row["agent_id"] == self._agent_id else "pending"
        return msgspec.structs.replace(_dropped(row), told=status)


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
