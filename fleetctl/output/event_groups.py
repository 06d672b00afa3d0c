"""Many events that tell one thing, as one sentence; must not print or ask the daemon."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .events import OPERATOR, sentence

if TYPE_CHECKING:
    from fleetd.protocol.records import Event

# Files and titles that are named of a run.
NAMED = 3


class Run(NamedTuple):
    """Two events or more of one type and agent; files are named from the directory ``inside``."""

    events: "Sequence[Event]"
    inside: str | None


def _who(run: Run) -> str:
    return run.events[0].agent_id or OPERATOR


def _progress(run: Run) -> str:
    first, last = run.events[0].data, run.events[-1].data
    notes = f": {last['notes']}" if last.get("notes") else ""
    went = f"went from {first.get('percent')}% to {last.get('percent')}%"
    return f'{_who(run)} {went} of "{last.get("title")}" in {len(run.events)} steps{notes}'


def _files(verb: str) -> Callable[[Run], str]:
    def tell(run: Run) -> str:
        base = run.inside.rstrip("/") + "/" if run.inside else ""
        files = list(dict.fromkeys(str(each.data.get("file", "?")) for each in run.events))
        names = [each.removeprefix(base) for each in files]
        if len(names) == 1:
            return f"{_who(run)} {verb} {names[0]} {len(run.events)} times"
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{_who(run)} {verb} {len(names)} files: {', '.join(names[:NAMED])}{more}"

    return tell


def _commands(run: Run) -> str:
    failed = sum(each.data.get("result") == "FAIL" for each in run.events)
    trouble = f", {failed} failed" if failed else ""
    return f"{_who(run)} ran {len(run.events)} commands{trouble}"


def _sorties(run: Run) -> str:
    titles = ", ".join(f'"{each.data.get("title")}"' for each in run.events[:NAMED])
    more = f" and {len(run.events) - NAMED} more" if len(run.events) > NAMED else ""
    return f"{_who(run)} added {len(run.events)} sorties: {titles}{more}"


def _letters(run: Run) -> str:
    people = dict.fromkeys(str(to) for each in run.events for to in each.data.get("to") or [])
    return f"{_who(run)} wrote {len(run.events)} messages to {', '.join(people)}"


def _again(run: Run) -> str:
    return f"{sentence(run.events[-1], inside=run.inside)} ({len(run.events)} times)"


RUNS: dict[str, Callable[[Run], str]] = {
    "sortie_progressed": _progress,
    "sortie_created": _sorties,
    "sortie_restored": _again,
    "file_modified": _files("edited"),
    "lock_acquired": _files("locked"),
    "lock_released": _files("released"),
    "lock_expired": _again,
    "command_finished": _commands,
    "tool_finished": _again,
    "tool_failed": _again,
    "error_reported": _again,
    "message_sent": _letters,
    "message_acked": _again,
    "message_requeued": _again,
    "agent_answered": _again,
    "prompt_submitted": _again,
    "agent_noted": _again,
}
