"""The page of ``fleetctl checkpoints diff``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import console

if TYPE_CHECKING:
    from ...client.models import ChangedSortie, CheckpointDifference, Compared, FieldChange

# A mark, and what stands behind it.
Line = tuple[str, str]
STYLES = {"+": "green", "-": "red", "~": "yellow"}
NAMES = {
    "assigned_to": "agent",
    "progress_notes": "notes",
    "blocked_reason": "blocked",
    "project_dir": "directory",
    "mission_summary": "summary",
    "last_action": "last action",
    "next_steps": "next steps",
    "files_modified": "files modified",
}


def show_difference(found: "CheckpointDifference") -> None:
    """Print what a person wants to know: what was done in between, then what is different."""
    print(console.styled(console.clean(f"{found.mission_title} ({found.mission_id})"), "bold"))
    console.flow("  from ", _side(found.before))
    console.flow("  to   ", _side(found.after))
    if found.after.seq < found.before.seq:
        console.line("The second one is the older: this is what going back to it would change.")
    print()
    if found.equal:
        console.line("No differences.")
        return
    console.line(_progress(found))
    if told := summary(found):
        console.flow("In between: ", f"{told}.")
    for title, lines in _sections(found):
        _section(title, list(lines))


def _side(side: "Compared") -> str:
    if side.checkpoint_id is None:
        return "now" if console.humane() else f"{'now':<12}  {side.timestamp}"
    details = f" ({side.trigger_details})" if side.trigger_details else ""
    return f"{side.checkpoint_id:<12}  {console.ago(side.timestamp)}  {side.trigger}{details}"


def _progress(found: "CheckpointDifference") -> str:
    before, after = found.before, found.after
    then = f"{before.completed_sorties}/{before.total_sorties}"
    now = f"{after.completed_sorties}/{after.total_sorties} sorties complete"
    if before.progress_percent == after.progress_percent:
        return f"Progress: still {after.progress_percent}% ({now})"
    return f"Progress: {before.progress_percent}% -> {after.progress_percent}% ({then} -> {now})"


def summary(found: "CheckpointDifference") -> str:
    """Return in words what was done between the two: ``2 sorties completed, 1 lock released``."""
    went = [_went_to(sortie) for sortie in found.sorties.changed]
    counted = [
        *((went.count(to), "sortie", word) for to, word in _ENDS.items()),
        (len(found.sorties.added), "sortie", "added"),
        (len(found.sorties.removed), "sortie", "removed"),
        (len(_new_entries(found.recovery_context, "files_modified")), "file", "modified"),
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


def _went_to(sortie: "ChangedSortie") -> object:
    return next((each.after for each in sortie.changes if each.field == "status"), None)


def _new_entries(changes: Sequence["FieldChange"], field: str) -> list[Any]:
    for each in changes:
        if each.field == field and isinstance(each.after, list):
            before = each.before if isinstance(each.before, list) else []
            return [entry for entry in each.after if entry not in before]
    return []


def _sections(found: "CheckpointDifference") -> Iterator[tuple[str, Iterable[Line]]]:
    yield "Mission", _changes(found.mission)
    yield "Sorties", _sorties(found)
    yield "Locks", _locks(found)
    yield "Messages that wait", _messages(found)
    yield "Recovery context", _changes(found.recovery_context)


def _section(title: str, lines: Sequence[Line]) -> None:
    if not lines:
        return
    console.heading(f"{title}:")
    for mark, text in lines:
        console.flow(f"  {mark} " if mark else "      ", text, style=STYLES.get(mark, ""))


def _sorties(found: "CheckpointDifference") -> Iterator[Line]:
    for sortie in found.sorties.removed:
        yield "-", f"{sortie.id}  {sortie.title}"
    for sortie in found.sorties.added:
        yield "+", f"{sortie.id}  {sortie.title} ({_with_agent(sortie.status, sortie.assigned_to)})"
    for changed in found.sorties.changed:
        yield "~", f"{changed.id}  {changed.title}"
        for mark, text in _changes(changed.changes):
            yield "", text if mark == "~" else f"{mark} {text}"


def _with_agent(status: str, agent: str | None) -> str:
    status = status.replace("_", " ")
    return f"{status}, {agent}" if agent else status


def _locks(found: "CheckpointDifference") -> Iterator[Line]:
    for lock in found.locks.released:
        yield "-", f"{console.path(lock.file)}  {lock.held_by}"
    for lock in found.locks.gained:
        yield "+", f"{console.path(lock.file)}  {lock.held_by}"
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
            yield from _list_change(name, each.before or [], each.after or [])
        else:
            yield "~", f"{name}: {_value(each.before)} -> {_value(each.after)}"


def _list_change(name: str, before: Any, after: Any) -> Iterator[Line]:
    removed = [entry for entry in before if entry not in after]
    added = [entry for entry in after if entry not in before]
    if not removed and not added:
        yield "~", f"{name}: in another order"
    for entry in removed:
        yield "-", f"{name}: {entry}"
    for entry in added:
        yield "+", f"{name}: {entry}"


def _value(value: object) -> str:
    if value is None or value == "":
        return "none"
    return str(value).replace("_", " ") if value in _ENDS else str(value)
