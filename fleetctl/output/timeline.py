"""What happened on a mission, as the entries of a story; must not print or ask the daemon.

Many events that tell one thing become one entry, what tells nothing new is left out, and silences
stand where they were.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import times
from .event_groups import RUNS, Run
from .events import sentence, tone

if TYPE_CHECKING:
    from fleetd.protocol.records import Event

# As long as it takes the daemon to call a mission silent, unless told otherwise.
SILENT_MS = 5 * times.MINUTE
# A run ends when its agent did nothing of the kind for so long.
RUN_MS = 30 * times.MINUTE
# What the daemon says by itself: it breaks no silence.
_NOBODYS_NAMES = (
    "agent_lost agent_returned backup_failed checkpoint_created checkpoint_deleted "
    "checkpoints_pruned context_compacted fleet_recovered hook_noted legacy_imported "
    "lock_conflicted lock_expired message_delivered message_failed message_requeued "
    "mission_deleted mission_reopened records_forgotten recovery_available "
    "recovery_briefed recovery_confirmed recovery_unconfirmed snapshot_recorded "
    "snapshots_pruned sortie_moved sortie_restored store_restored window_compacted "
    "fleet_checkpointed"
)
NOBODYS = frozenset(_NOBODYS_NAMES.split())
# What another event or a silence says better.
_TELLS_NOTHING_NAMES = (
    "lock_renewed message_delivered checkpoint_created snapshot_recorded tool_started "
    "command_started context_compacted hook_noted backup_failed agent_paused "
    "agent_resumed sortie_updated checkpoint_deleted"
)
_TELLS_NOTHING = frozenset(_TELLS_NOTHING_NAMES.split())


class Entry(NamedTuple):
    """One line of a story: when it began and ended, in ms, what it says, and of how many events.

    ``kind`` is the type of its events, or ``silence``.
    """

    kind: str
    begun: int
    ended: int
    text: str
    tone: str | None
    events: "Sequence[Event]"
    agent: str | None


def story(
    events: "Iterable[Event]",
    now_ms: int,
    *,
    inside: str | None = None,
    full: bool = False,
    goes_on: bool = False,
) -> list[Entry]:
    """Return the entries of a mission, oldest first; ``full`` gives every event one of its own.

    Files are named from the directory ``inside``. A mission that ``goes_on`` may be silent now.
    """
    runs: list[list[Event]] = []
    silences: list[Entry] = []
    grown: dict[tuple[str, str, str], int] = {}
    last = None
    for event in events:
        at = _at(event)
        if event.type not in NOBODYS:
            if last is not None and at - last >= SILENT_MS:
                silences.append(_silence(last, at))
                # What is told as one thing was not silent in between.
                grown.clear()
            last = at
        if full or event.type not in _TELLS_NOTHING:
            _take(runs, grown, event, full=full)
    if goes_on and last is not None and now_ms - last >= SILENT_MS:
        silences.append(_silence(last, now_ms, still=True))
    found = [_entry(run, inside) for run in runs] + silences
    return sorted(found, key=lambda entry: entry.begun)


def _at(event: "Event") -> int:
    """Return when an event happened; one from the spool was recorded later."""
    happened = event.data.get("happened_at") if isinstance(event.data, dict) else None
    at = times.ms_of(happened) if isinstance(happened, str) else None
    return at if at is not None else times.ms_of(event.timestamp) or 0


def _silence(begun: int, ended: int, *, still: bool = False) -> Entry:
    text = f"silent for {times.span(ended - begun)}" + (", and still is" if still else "")
    return Entry("silence", begun, ended, text, "dim", [], None)


def _take(
    runs: "list[list[Event]]",
    grown: dict[tuple[str, str, str], int],
    event: "Event",
    *,
    full: bool,
) -> None:
    """Add an event to the run that it goes on with, or begin another one."""
    who = event.agent_id or ""
    key = (event.type, who, _about(event))
    open_run = grown.get(key) if event.type in RUNS and not full else None
    if open_run is not None and _at(event) - _at(runs[open_run][-1]) < RUN_MS:
        runs[open_run].append(event)
        return
    if event.type not in RUNS:
        # What an agent does between two turns of something else parts them.
        for other in [each for each in grown if each[1] == who]:
            del grown[other]
    grown[key] = len(runs)
    runs.append([event])


def _about(event: "Event") -> str:
    """Return what tells runs of one type and agent apart."""
    names = {"sortie_progressed": "sortie_id", "error_reported": "message", "tool_failed": "name"}
    return str(event.data.get(names.get(event.type, "")) or "")


def _entry(run: "Sequence[Event]", inside: str | None) -> Entry:
    first, last = run[0], run[-1]
    text = sentence(last, inside=inside)
    if len(run) > 1:
        text = RUNS[first.type](Run(run, inside))
    return Entry(first.type, _at(first), _at(last), text, tone(first.type), run, first.agent_id)
