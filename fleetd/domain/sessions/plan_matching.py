"""Plan matching: which item of a harness's plan is which of the plan before.

Harnesses send their whole list each time, mostly without ids, and reword items as they go.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence

import msgspec

from ...harness.report import PlanItem
from ...protocol.display import short

# More than any plan that somebody follows; what comes after them is passed over.
MOST_ITEMS = 1_000
# A title holds no more; what an item says beyond it is not told apart.
TEXT_CHARS = 500
# How many items of before are looked at for one that was reworded: the cost stays linear.
_WINDOW = 3


# What an item bears instead of a status after a recovery changed its sortie: the plan is to be
# heard again. One that is back had been dropped before.
BACK = "back"
DIRTY = ("", BACK)


class KnownItem(msgspec.Struct, kw_only=True):
    """An item as the plan told it last, and its sortie.

    ``told`` is the status it had in the plan, or one of ``DIRTY``. ``made`` says that the plan
    made the sortie, and may take it away.
    """

    sortie_id: str
    item_id: str | None
    text: str
    told: str
    position: int
    made: bool


def items_of_list(items: Sequence[PlanItem]) -> tuple[list[PlanItem], int]:
    """Return what a whole list names, and how many items were too many.

    What a list says is dropped is not named. A second item with an id of another is one without.
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
    """Return what a partial list says: the last word about each id, the last text it gave."""
    said: dict[Hashable, PlanItem] = {}
    for number, item in enumerate(items[:MOST_ITEMS]):
        text = short(item.text, TEXT_CHARS)
        before = said.get(item.id) if item.id else None
        if not text and before:
            text = before.text
        if text or item.id:
            said[item.id or number] = PlanItem(text=text, status=item.status, id=item.id or None)
    return list(said.values())


def match_whole_list(
    before: Sequence[KnownItem], named: Sequence[PlanItem]
) -> list[KnownItem | None]:
    """Return for each item of a whole list the item of before that it is; ``before`` in order.

    By the harness's id, else by text, else by place with similar text. Of items with one text
    those that stand as they stood come first, so that a finished one that left takes no open one
    with it.
    """
    match = _Match(before, named)
    match.by_id()
    match.by(_as_told, _as_named)
    match.by(lambda told: normalized(told.text), lambda item: normalized(item.text))
    match.by_place()
    return match.found


def match_updates(before: Sequence[KnownItem], named: Sequence[PlanItem]) -> list[KnownItem | None]:
    """Return for each item of a partial list the one it is: by id, else an open one by its text.

    Two tasks of one text have two ids: where both have one, only the ids count.
    """
    match = _Match(before, named)
    match.by_id()
    match.by(lambda told: not told.item_id and _as_told(told), _as_named)
    match.by(
        lambda told: not told.item_id and _open(told),
        lambda item: _lasting(item) and normalized(item.text),
    )
    match.by(_as_told, lambda item: not item.id and _as_named(item))
    match.by(_open, lambda item: not item.id and normalized(item.text))
    return match.found


def _as_told(told: KnownItem) -> Hashable:
    return normalized(told.text), told.told


def _as_named(item: PlanItem) -> Hashable:
    return normalized(item.text), item.status


def _lasting(item: PlanItem) -> bool:
    """Whether an item may be known by its text: what is dropped by its id is dropped once."""
    return not (item.status == "dropped" and item.id)


def _open(told: KnownItem) -> Hashable:
    return told.told != "completed" and normalized(told.text)


def is_new_under_old_id(told: KnownItem, item: PlanItem) -> bool:
    """Whether a harness uses the id of an item that is over for another one."""
    over = told.told in ("completed", "dropped") and item.status != told.told
    return over and bool(item.text) and not is_similar(told.text, item.text)


def is_similar(one: str, other: str) -> bool:
    """Whether two texts share at least half of their words, in any order.

    Who rewords a step keeps its nouns and adds words around them; comparing letters would take
    the square of their number, and find ``add`` and ``dad`` alike.
    """
    mine, theirs = normalized(one).split(), normalized(other).split()
    shared = (Counter(mine) & Counter(theirs)).total()
    return 4 * shared >= len(mine) + len(theirs) > 0


def normalized(text: str) -> str:
    """Return a text as it is compared: without case and without more than one space."""
    return " ".join(text.casefold().split())


class _Match:
    """Items and what was found for them so far; nothing of before is taken twice."""

    def __init__(self, before: Sequence[KnownItem], named: Sequence[PlanItem]) -> None:
        self._before, self._named = before, named
        self._order = {told.sortie_id: index for index, told in enumerate(before)}
        self._taken: set[str] = set()
        self.found: list[KnownItem | None] = [None] * len(named)

    def _pair(self, index: int, told: KnownItem) -> None:
        self.found[index] = told
        self._taken.add(told.sortie_id)

    def by_id(self) -> None:
        ids = {told.item_id: told for told in self._before if told.item_id}
        for index, item in enumerate(self._named):
            told = ids.get(item.id) if item.id else None
            if told and told.sortie_id not in self._taken and not is_new_under_old_id(told, item):
                self._pair(index, told)

    def by(
        self, of_told: Callable[[KnownItem], Hashable], of_item: Callable[[PlanItem], Hashable]
    ) -> None:
        """Pair what is left and equal, in order; a key that is false is no key."""
        waiting: dict[Hashable, deque[KnownItem]] = defaultdict(deque)
        for told in self._before:
            if told.sortie_id not in self._taken and (key := of_told(told)):
                waiting[key].append(told)
        for index, item in enumerate(self._named):
            if self.found[index] is None and item.text and (equal := waiting.get(of_item(item))):
                self._pair(index, equal.popleft())

    def by_place(self) -> None:
        """Pair what is left with the first similar one behind the one of the item before.

        Never a finished one with an open one: that is other work in similar words.
        """
        left = [
            index for index, told in enumerate(self._before) if told.sortie_id not in self._taken
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
            told = self.found[index]
            if told is not None:
                behind = self._order[told.sortie_id]


def _reworded(told: KnownItem, item: PlanItem) -> bool:
    reopened = told.told == "completed" and item.status != "completed"
    return not reopened and is_similar(told.text, item.text)
