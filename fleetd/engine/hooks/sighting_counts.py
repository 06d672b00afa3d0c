"""Sighting counts: names from hooks, cleaned for storage, and how often each was sent.

They are counted in memory, so that a hook costs no statement for it; ``sightings`` writes them.
"""

from collections.abc import Iterable, Sequence

from ...domain.redaction.redact import redact
from ...domain.sessions.sightings import (
    HARNESSES,
    NAME_CHARS,
    NAMES,
    OTHERS,
    Sighting,
    SightingKind,
)
from ...harness.report import Adapter, Paused, Payload, Report, SessionStarted
from ...protocol.display import dropped

# How much of a name is searched for secrets before it is cut.
LOOKED_AT = 1_000
NAMELESS = "(unprintable)"
KINDS = 4
# For how many sessions it is remembered that their transcript was asked.
SESSIONS = 1_000


def clean_name(name: str) -> str:
    """Return a name fit to store and show: no secret, no control character, 64 characters."""
    if len(name) <= NAME_CHARS and name.isascii() and name.isidentifier():
        return redact(name)
    shown = dropped(redact(name[:LOOKED_AT]))
    return "".join(filter(str.isprintable, shown))[:NAME_CHARS].strip() or NAMELESS


def unknown_fields(adapter: Adapter, payload: Payload) -> tuple[str, ...]:
    """Return the top-level fields that the adapter does not know, at most 65.

    Empty for an adapter without a list of fields. Beyond 64, one empty name stands for the rest.
    """
    if adapter.known_fields is None or adapter.known_fields >= payload.keys():
        return ()
    names: dict[str, None] = {}
    for name in payload:
        if name not in adapter.known_fields:
            if len(names) >= NAMES:
                return (*names, OTHERS)
            names[clean_name(name)] = None
    return tuple(names)


class SightingCounts:
    """The counts since the last write, with the same limits as the table."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, SightingKind], dict[str, Sighting]] = {}
        self._asked: dict[tuple[str, str], None] = {}

    def note(self, harness: str, kind: SightingKind, name: str, now: str) -> None:
        """Count a name that was sent ``now`` (ISO 8601 UTC); the name is already clean."""
        self._add(Sighting(harness=harness, kind=kind, name=name, number=1, last_at=now))

    def asks_version(self, report: Report) -> bool:
        """Return whether to read the version from a session's transcript now.

        That is at the end of its first turn, and again after a resume: the version may change.
        """
        session = report.harness, report.session_id
        kinds = {type(each) for each in report.happenings}
        if SessionStarted in kinds:
            self._asked.pop(session, None)
        if Paused not in kinds or session in self._asked:
            return False
        self._asked[session] = None
        if len(self._asked) > SESSIONS:
            del self._asked[next(iter(self._asked))]
        return True

    def take(self) -> Sequence[Sighting]:
        """Return the counts and clear them."""
        lists, self._lists = self._lists, {}
        return tuple(each for names in lists.values() for each in names.values())

    def put_back(self, seen: Iterable[Sighting]) -> None:
        """Put back counts that could not be written."""
        for each in seen:
            self._add(each)

    def _add(self, seen: Sighting) -> None:
        place = seen.harness, seen.kind
        if place not in self._lists and len(self._lists) >= KINDS * HARNESSES:
            return
        names = self._lists.setdefault(place, {})
        name = seen.name
        if name not in names and len(names) >= NAMES:
            name = OTHERS
        before = names.get(name)
        names[name] = Sighting(
            harness=seen.harness,
            kind=seen.kind,
            name=name,
            number=seen.number + (before.number if before else 0),
            last_at=max(seen.last_at, before.last_at) if before else seen.last_at,
        )
