"""Titles of missions and sorties: whose words they are, and how a reader sees them.

A title that nobody is known to have worded is a person's, who speaks for everybody.
"""

from collections.abc import Sequence

import msgspec

from ...protocol.display import LINE_CHARS, attributed
from ...protocol.records import SortieState
from ..core.tx import Row, Tx

TITLE_CHARS = 120


class Titles(msgspec.Struct, frozen=True, kw_only=True):
    """A mission's titles as one reader may see them; ``reader`` is None for nobody in particular.

    ``authors`` has the agents that worded sorties, by the sorties' ids.
    """

    reader: str | None
    goal: str
    authors: dict[str, str]

    def of(self, sortie: SortieState) -> str:
        """Return a sortie's title: the reader's own words as they are, another agent's quoted."""
        title = sortie.title or sortie.id
        author = self.other(sortie)
        return attributed(title, author, self.reader, TITLE_CHARS) if author else title

    def other(self, sortie: SortieState) -> str | None:
        """Return the agent that made a sortie, None for the reader itself and for a person."""
        author = self.authors.get(sortie.id)
        return None if author == self.reader else author


def titles_for(tx: Tx, mission: Row, reader: str | None) -> Titles:
    """Return a mission's titles as a reader may see them."""
    rows = tx.all(
        "SELECT id, author FROM sorties WHERE mission_id = :id AND author IS NOT NULL",
        id=mission["id"],
    )
    return Titles(
        reader=reader,
        goal=goal_for(mission, reader),
        authors={row["id"]: row["author"] for row in rows},
    )


def goal_for(mission: Row, reader: str | None, limit: int = LINE_CHARS) -> str:
    """Return the title of a mission on one line, quoted where another agent worded it."""
    author = mission["author"]
    room = limit - len(f"{author}: “”") if author not in (None, reader) else limit
    return attributed(mission["title"], author, reader, max(room, 10))


def shares(
    sorties: Sequence[SortieState], titles: Titles, most: int
) -> tuple[list[SortieState], dict[str, int]]:
    """Return the sorties to tell of, and how many more each other agent made.

    Of what one other agent made there are ``most``: it cannot fill a recovery context.
    """
    kept: list[SortieState] = []
    made: dict[str, int] = {}
    for sortie in sorties:
        author = titles.other(sortie)
        if author is not None:
            made[author] = made.get(author, 0) + 1
        if author is None or made[author] <= most:
            kept.append(sortie)
    return kept, {author: n - most for author, n in made.items() if n > most}
