"""Plan matching: pairs each item of a harness's plan with an item of the previous plan.

Harnesses send their whole list each time, mostly without ids, and reword items as they go.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence

import msgspec

from ...harness.report import PlanItem
from ...protocol.display import short

# More than any plan that somebody follows; the items after them are skipped.
MOST_ITEMS = 1_000
# A title holds no more; text beyond it does not distinguish items.
TEXT_CHARS = 500
# How many earlier items are tried for a reworded one, so that the cost stays linear.
_WINDOW = 3


# The status of an item after a recovery changed its sortie: the plan's next word counts. An item
# that is back had been dropped before.
BACK = "back"
DIRTY = ("", BACK)


class KnownItem(msgspec.Struct, kw_only=True):
    """An item as the plan last reported it, and its sortie.

    ``told`` is its status in the plan, or one of ``DIRTY``. ``made`` means that the plan made the
    sortie, and may remove it.
    """

    sortie_id: str
    item_id: str | None
    text: str
    told: str
    position: int
    made: bool


def items_of_list(items: Sequence[PlanItem]) -> tuple[list[PlanItem], int]:
    """Return the items of a whole list, and how many items were too many.

    Items that the list marks as dropped are left out. A second item with the same id loses its id.
    """
    named: list[PlanItem] = []
    ids: set[str] = set()
    for item in items:
        text = short(item.text, TEXT_CHARS)
        if item.status == "dropped" or not (text or item.id):
            continue
        item_id = None if item.id in ids else item.id or None
        if item_id:
            ids.add(item_id)
        named.append(PlanItem(text=text, status=item.status, id=item_id))
    return named[:MOST_ITEMS], max(0, len(named) - MOST_ITEMS)


def items_of_updates(items: Sequence[PlanItem]) -> list[PlanItem]:
    """Return the items of a partial list: the last status for each id, and the last text given."""
    latest: dict[Hashable, PlanItem] = {}
    for number, item in enumerate(items[:MOST_ITEMS]):
        text = short(item.text, TEXT_CHARS)
        before = latest.get(item.id) if item.id else None
        if not text and before:
            text = before.text
        if text or item.id:
            latest[item.id or number] = PlanItem(text=text, status=item.status, id=item.id or None)
    return list(latest.values())


def match_whole_list(
    before: Sequence[KnownItem], named: Sequence[PlanItem]
) -> list[KnownItem | None]:
    """Return, for each item of a whole list, the earlier item that it is; ``before`` in order.

    Items match by the harness's id, else by text, else by place with similar text. Of items with
    one text, those with an unchanged status come first, so that a finished item that left takes no
    open one with it.
    """
    match = _Match(before, named)
    match.by_id()
    match.by(_known_key, _item_key)
    match.by(lambda known: normalized(known.text), lambda item: normalized(item.text))
    match.by_place()
    return match.found


def match_updates(before: Sequence[KnownItem], named: Sequence[PlanItem]) -> list[KnownItem | None]:
    """Return the match of each item of a partial list: by id, else an open item by its text.

    Two tasks of one text have two ids: if both items have an id, only the ids count.
    """
    match = _Match(before, named)
    match.by_id()
    match.by(lambda known: not known.item_id and _known_key(known), _item_key)
    match.by(
        lambda known: not known.item_id and _open(known),
        lambda item: _lasting(item) and normalized(item.text),
    )
    match.by(_known_key, lambda item: not item.id and _item_key(item))
    match.by(_open, lambda item: not item.id and normalized(item.text))
    return match.found


def _known_key(known: KnownItem) -> Hashable:
    return normalized(known.text), known.told


def _item_key(item: PlanItem) -> Hashable:
    return normalized(item.text), item.status


def _lasting(item: PlanItem) -> bool:
    """Return whether an item may match by text: one dropped by its id is dropped once."""
    return not (item.status == "dropped" and item.id)


def _open(known: KnownItem) -> Hashable:
    return known.told != "completed" and normalized(known.text)


def is_new_under_old_id(known: KnownItem, item: PlanItem) -> bool:
    """Return whether a harness reuses the id of a finished item for another one."""
    over = known.told in ("completed", "dropped") and item.status != known.told
    return over and bool(item.text) and not is_similar(known.text, item.text)


def is_similar(one: str, other: str) -> bool:
    """Return whether two texts share at least half of their words, in any order.

    A reworded step keeps its nouns and gets words around them. Comparing letters would take the
    square of their number, and find ``add`` and ``dad`` alike.
    """
    mine, theirs = normalized(one).split(), normalized(other).split()
    shared = (Counter(mine) & Counter(theirs)).total()
    return 4 * shared >= len(mine) + len(theirs) > 0


def normalized(text: str) -> str:
    """Return a text for comparison: without case and without more than one space."""
    return " ".join(text.casefold().split())


class _Match:
    """Items and their matches so far; no earlier item is matched twice."""

    def __init__(self, before: Sequence[KnownItem], named: Sequence[PlanItem]) -> None:
        self._before, self._named = before, named
        self._order = {known.sortie_id: index for index, known in enumerate(before)}
        self._taken: set[str] = set()
        self.found: list[KnownItem | None] = [None] * len(named)

    def _pair(self, index: int, known: KnownItem) -> None:
        self.found[index] = known
        self._taken.add(known.sortie_id)

    def by_id(self) -> None:
        ids = {known.item_id: known for known in self._before if known.item_id}
        for index, item in enumerate(self._named):
            known = ids.get(item.id) if item.id else None
            if (
                known
                and known.sortie_id not in self._taken
                and not is_new_under_old_id(known, item)
            ):
                self._pair(index, known)

    def by(
        self, known_key: Callable[[KnownItem], Hashable], item_key: Callable[[PlanItem], Hashable]
    ) -> None:
        """Pair remaining items with equal keys, in order; a false key is no key."""
        waiting: dict[Hashable, deque[KnownItem]] = defaultdict(deque)
        for known in self._before:
            if known.sortie_id not in self._taken and (key := known_key(known)):
                waiting[key].append(known)
        for index, item in enumerate(self._named):
            if self.found[index] is None and item.text and (equal := waiting.get(item_key(item))):
                self._pair(index, equal.popleft())

    def by_place(self) -> None:
        """Pair remaining items with the first similar one after the match of the item before.

        A finished item never matches an open one: that is other work in similar words.
        """
        left = [
            index for index, known in enumerate(self._before) if known.sortie_id not in self._taken
        ]
        behind = -1
        for index, item in enumerate(self._named):
            if self.found[index] is None and item.text:
                start = bisect_right(left, behind)
                for place in left[start : start + _WINDOW]:
                    if _reworded(self._before[place], item):
                        self._pair(index, self._before[place])
                        left.remove(place)
                        break
            known = self.found[index]
            if known is not None:
                behind = self._order[known.sortie_id]


def _reworded(known: KnownItem, item: PlanItem) -> bool:
    reopened = known.told == "completed" and item.status != "completed"
    return not reopened and is_similar(known.text, item.text)
