"""The page of ``fleetctl checkpoint diff``."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .. import console

if TYPE_CHECKING:
    from ...client.models import CheckpointDifference, Compared, FieldChange

# A mark, and the text after it.
Line = tuple[str, str]
STYLES = {"+": "green", "-": "red", "~": "yellow"}
NAMES = {
    "assigned_to": "agent",
    "progress_notes": "notes",
    "blocked_reason": "blocked",
    "depends_on": "waits for",
    "project_dir": "directory",
    "mission_summary": "summary",
    "last_action": "last action",
    "next_steps": "next steps",
    "files_modified": "files modified",
}


def show_difference(found: "CheckpointDifference") -> None:
    """Print a difference for a person: first what was done in between, then what changed."""
    print(console.styled(console.clean(f"{found.mission_title} ({found.mission_id})"), "bold"))
    console.flow("  from ", _side(found.before))
    console.flow("  to   ", _side(found.after))
    if found.after.seq < found.before.seq:
        console.line("The second one is the older: this is what going back to it would change.")
    print()
    if found.equal:
        console.line("No differences.")
        return
    console.line(_progress(found.before, found.after))
    if done := _summary(found):
        console.flow("In between: ", f"{done}.")
    for title, lines in (
        ("Mission", _changes(found.mission)),
        ("Sorties", _sorties(found)),
        ("Locks", _locks(found)),
        ("Messages that wait", _messages(found)),
        ("Recovery context", _changes(found.recovery_context)),
    ):
        for n, (mark, text) in enumerate(lines):
            if not n:
                console.heading(f"{title}:")
            console.flow(f"  {mark} " if mark else "      ", text, style=STYLES.get(mark, ""))


def _side(side: "Compared") -> str:
    if side.moment:
        return f"{'moment':<12}  {console.ago(side.timestamp)}"
    if side.checkpoint_id is None:
        return "now" if console.human_readable() else f"{'now':<12}  {side.timestamp}"
    details = f" ({side.trigger_details})" if side.trigger_details else ""
    return f"{side.checkpoint_id:<12}  {console.ago(side.timestamp)}  {side.trigger}{details}"


def _progress(before: "Compared", after: "Compared") -> str:
    now = f"{after.completed_sorties}/{after.total_sorties} sorties complete"
    if before.progress_percent == after.progress_percent:
        return f"Progress: still {after.progress_percent}% ({now})"
    then = f"{before.completed_sorties}/{before.total_sorties}"
    return f"Progress: {before.progress_percent}% -> {after.progress_percent}% ({then} -> {now})"


def _summary(found: "CheckpointDifference") -> str:
    """Return in words what was done between the two: ``2 sorties completed, 1 lock released``."""
    statuses = [
        each.after
        for sortie in found.sorties.changed
        for each in sortie.changes
        if each.field == "status"
    ]
    modified = [
        file
        for each in found.recovery_context
        if each.field == "files_modified" and isinstance(each.after, list)
        for file in _list_changes(each)[1]
    ]
    counted = [
        *((statuses.count(to), "sortie", word) for to, word in _ENDS.items()),
        (len(found.sorties.added), "sortie", "added"),
        (len(found.sorties.removed), "sortie", "removed"),
        (len(modified), "file", "modified"),
        (len(found.locks.gained), "lock", "taken"),
        (len(found.locks.released), "lock", "released"),
        (len(found.locks.changed), "lock", "passed on"),
        (len(found.messages.new), "message", "sent"),
        (len(found.messages.gone), "message", "received"),
    ]
    return ", ".join(f"{console.plural(n, noun)} {word}" for n, noun, word in counted if n)


_ENDS = {
    "completed": "completed",
    "failed": "failed",
    "blocked": "blocked",
    "in_progress": "begun or gone on with",
    "assigned": "assigned",
    "pending": "put back",
}


def _sorties(found: "CheckpointDifference") -> Iterator[Line]:
    for sortie in found.sorties.removed:
        yield "-", f"{sortie.id}  {sortie.title}"
    for sortie in found.sorties.added:
        agent = f", {sortie.assigned_to}" if sortie.assigned_to else ""
        status = sortie.status.replace("_", " ")
        yield "+", f"{sortie.id}  {sortie.title} ({status}{agent})"
    for changed in found.sorties.changed:
        yield "~", f"{changed.id}  {changed.title}"
        for mark, text in _changes(changed.changes):
            yield "", text if mark == "~" else f"{mark} {text}"


def _locks(found: "CheckpointDifference") -> Iterator[Line]:
    for sign, locks in (("-", found.locks.released), ("+", found.locks.gained)):
        for lock in locks:
            yield sign, f"{console.path(lock.file)}  {lock.held_by}"
    for changed in found.locks.changed:
        yield "~", f"{console.path(changed.file)}  {changed.before} -> {changed.after}"


def _messages(found: "CheckpointDifference") -> Iterator[Line]:
    for sign, messages in (("-", found.messages.gone), ("+", found.messages.new)):
        for each in messages:
            to = ", ".join(each.to)
            yield sign, f"{each.id}  {each.sender} to {to}: {each.subject}"
    for changed in found.messages.changed:
        then, now = ", ".join(changed.before), ", ".join(changed.after)
        yield "~", f"{changed.id}  {changed.subject}: {then} -> {now}"


def _changes(changes: Iterable["FieldChange"]) -> Iterator[Line]:
    for each in changes:
        name = NAMES.get(each.field, each.field)
        if isinstance(each.before, list) or isinstance(each.after, list):
            removed, added = _list_changes(each)
            if not removed and not added:
                yield "~", f"{name}: in another order"
            yield from (("-", f"{name}: {entry}") for entry in removed)
            yield from (("+", f"{name}: {entry}") for entry in added)
        else:
            yield "~", f"{name}: {_value(each.before)} -> {_value(each.after)}"


def _list_changes(change: "FieldChange") -> tuple[list[Any], list[Any]]:
    """Return the entries that only the list before has, and those that only the one after has."""
    before: Any = change.before or []
    after: Any = change.after or []
    return (
        [entry for entry in before if entry not in after],
        [entry for entry in after if entry not in before],
    )


def _value(value: object) -> str:
    if value is None or value == "":
        return "none"
    return str(value).replace("_", " ") if value in _ENDS else str(value)
