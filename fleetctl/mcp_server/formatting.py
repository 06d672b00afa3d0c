"""Formatting: records and errors as an agent reads them, short and bounded.

Text from others goes through ``words``, ``quote`` or ``quoted``, so that no agent takes it for
fleetd's own. Every outgoing text goes through ``fit``.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fleetd.protocol import endings
from fleetd.protocol.display import attributed, clean, clean_block, duration, escaped, quote
from fleetd.protocol.errors import FleetError, LockConflict, NotFound, Unavailable
from fleetd.protocol.records import (
    Agent,
    Checkpoint,
    CheckpointSummary,
    Lock,
    Message,
    Mission,
    Sortie,
)
from fleetd.protocol.requests.attention import AgentState, EditConflict
from fleetd.protocol.requests.search import SearchHit
from fleetd.protocol.types import CLOSED_SORTIE

# Some CLIs cut an answer that is too long, others refuse it.
MOST_CHARS = 12_000
LINE_CHARS = 400
BODY_CHARS = 4_000


def fit(text: str) -> str:
    """Return a text as an agent may read it: bounded, without invisible characters."""
    return bounded(clean_block(text))


def bounded(text: str, most: int = MOST_CHARS) -> str:
    """Return a text that is not too long; a note marks a cut."""
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()}\n… cut here: {len(text):,} characters in all."


def listed(lines: Iterable[str], *, most: int = MOST_CHARS) -> str:
    """Return as many lines as fit, and how many do not."""
    kept: list[str] = []
    left, room = 0, most - 40
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            left += 1
        else:
            kept.append(line)
    return "\n".join([*kept, f"… {left} more"] if left else kept)


def cut(text: str | None, most: int = LINE_CHARS) -> str:
    """Return a text on one line."""
    line = clean(text or "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def words(
    text: str | None,
    author: str | None,
    me: str | None,
    most: int = LINE_CHARS,
    by: str | None = None,
) -> str:
    """Return a text on one line: the agent's own words, or a quotation with its author's name.

    ``by`` is an author whom the line already names, and who is not named again.
    """
    if not text:
        return ""
    if author is None or (author != me and author == by):
        return quote(text, most)
    return attributed(text, author, me, most)


def path(name: str) -> str:
    """Return a file's name on one line, with escapes for invisible characters."""
    line = escaped(name)
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def mission_head(mission: Mission, me: str | None, left: int | None = None) -> str:
    """Return a mission in two or three lines; ``left`` is its number of open sorties, if known."""
    where = f" in {path(mission.project_dir)}" if mission.project_dir else ""
    done = f"{mission.completed_sorties}/{mission.total_sorties} sorties"
    how = endings.standing(
        mission.status, mission.closed_reason, mission.total_sorties, left, mission.merged_into
    )
    head = f"{mission.id} {how} {mission.progress_percent}% ({done}){where}"
    about = words(mission.description, mission.author, me, 1_000)
    goal = f"{head}\nGoal: {words(mission.title, mission.author, me)}"
    return f"{goal}\nAbout it: {about}" if about else goal


def sortie_line(sortie: Sortie, me: str | None) -> str:
    """Return a sortie's ID, state, title, agent, and what is known about it."""
    state = sortie.status if sortie.status != "in_progress" else f"in_progress {sortie.progress}%"
    owner = sortie.assigned_to
    assignee = "" if owner is None else " (you)" if owner == me else f" ({owner})"
    known = {"blocked": sortie.blocked_reason, "completed": None, "failed": sortie.result}
    notes = words(known.get(sortie.status, sortie.progress_notes), owner, me, by=owner)
    files = f" [{cut(', '.join(map(path, sortie.files)))}]" if sortie.files else ""
    is_open = sortie.status not in ("completed", "failed")
    about = words(sortie.description, sortie.author, me, by=sortie.author) if is_open else ""
    details = "".join(f" - {each}" for each in (about, notes) if each)
    waits = f" (waits for {', '.join(sortie.waits_for)})" if sortie.waits_for else ""
    return (
        f"{sortie.id} {state}: {words(sortie.title, sortie.author, me)}"
        f"{assignee}{waits}{details}{files}"
    )


def mission_text(mission: Mission, sorties: Sequence[Sortie], me: str | None) -> str:
    """Return a mission with its sorties; if not all fit, completed ones are left out."""
    lines = [sortie_line(each, me) for each in sorties]
    if sum(map(len, lines)) > MOST_CHARS - 2_000:
        lines = [sortie_line(each, me) for each in sorties if each.status != "completed"]
        lines.append(f"({len(sorties) - len(lines)} completed sorties are left out)")
    left = sum(each.status not in CLOSED_SORTIE for each in sorties)
    return f"{mission_head(mission, me, left)}\n{listed(lines, most=MOST_CHARS - 2_000)}".rstrip()


def lock_line(lock: Lock, name: str, me: str | None) -> str:
    """Return who holds a file, for what, and until when."""
    holder = "you" if lock.held_by == me else lock.held_by
    purpose = words(lock.purpose, lock.held_by, me, by=lock.held_by)
    held = "shared by" if lock.mode == "shared" else "held by"
    return f"{path(name)}: {held} {holder} ({purpose}) {until(lock.expires_at)}"


def message_block(message: Message, me: str) -> str:
    """Return a message as its recipient reads it."""
    marks = [f"priority {message.priority}"] if message.priority != "medium" else []
    marks += [f"thread {cut(message.thread_id)}"] if message.thread_id else []
    marks += [f"also to {', '.join(each for each in message.to if each != me)}"] * (
        len(message.to) > 1
    )
    about = f" ({'; '.join(marks)})" if marks else ""
    sent = f"{message.id} from {message.sender}, {message.sent_at[:19]}Z{about}"
    head = f"{sent}: {words(message.subject, message.sender, me, by=message.sender)}"
    return f"{head}\n{quoted(message.body)}" if message.body else head


def quoted(text: str) -> str:
    """Return the lines of a message, each marked as its sender's."""
    return "\n".join(f"> {line}".rstrip() for line in bounded(text, BODY_CHARS).splitlines())


def hit_line(hit: SearchHit, me: str | None) -> str:
    """Return a search hit: its time, kind, author, and text as a quotation."""
    author = "you" if me is not None and hit.agent_id == me else hit.agent_id or "a person"
    about = ", ".join(filter(None, (hit.id, hit.mission_id)))
    head = f"{hit.timestamp[:19]}Z {hit.kind} of {author}{f' ({about})' if about else ''}"
    return f"{head}: {quote(hit.excerpt, LINE_CHARS)}"


def agent_line(agent: Agent, me: str | None) -> str:
    """Return who an agent is and what it does."""
    harness = f", {cut(agent.harness)}" if agent.harness else ""
    mission = f" in {agent.mission_id}" if agent.mission_id else ""
    last_action = agent.note.last_action if agent.note else None
    did = f" - {words(last_action, agent.id, me, by=agent.id)}" if last_action else ""
    state = (
        f"{agent.status}: {agent.needs}"
        if agent.needs not in (None, agent.status)
        else agent.status
    )
    name = f"{agent.id} (you)" if agent.id == me else agent.id
    return f"{name}: {agent.role}{harness}, {state}{mission}{did}"


def running_lines(agent: AgentState) -> list[str]:
    """Return what runs for an agent: kind, ID, task, start, and last sign of life."""
    lines = []
    for each in agent.running:
        task = f" {quote(each.told, LINE_CHARS)}" if each.told else ""
        output = f", output in {path(each.output)}" if each.output else ""
        times = f"since {each.began_at[:19]}Z, last sign {each.seen_at[:19]}Z"
        lines.append(f"{each.kind} {cut(each.id)}:{task} {times}{output}")
    return [*lines, *([f"… {agent.running_more} more"] if agent.running_more else [])]


def need_line(agent: AgentState, me: str | None) -> str:
    """Return what an agent needs from a user, since when and where."""
    name = f"{agent.agent_id} (you)" if agent.agent_id == me else agent.agent_id
    where = f" in {path(agent.cwd)}" if agent.cwd else ""
    text = words(agent.text, agent.agent_id, me, by=agent.agent_id)
    until_then = f", limit ends {agent.reset_at[:19]}Z" if agent.reset_at else ""
    need = f"{agent.needs} since {agent.since[:19]}Z{until_then}{where}"
    return f"{name}: {need}" + (f" - {text}" if text else "")


def conflict_line(conflict: EditConflict, me: str | None) -> str:
    """Return a file that several agents changed: by whom, when and, if it differs, where."""
    edits = []
    for each in conflict.edits:
        name = f"{each.agent_id} (you)" if each.agent_id == me else each.agent_id
        where = f" in {path(each.path)}" if conflict.at_merge else ""
        on = f" on {cut(each.machine)}" if each.machine else ""
        edits.append(f"{name} at {each.at[:19]}Z{where}{on}")
    merge = " (will meet at merge)" if conflict.at_merge else ""
    return f"{path(conflict.file)}{merge}: {', '.join(edits)}"


def reason(each: CheckpointSummary | Checkpoint) -> str:
    """Return why a checkpoint was taken: in the requester's words, else by its trigger."""
    return quote(each.trigger_details, LINE_CHARS) if each.trigger_details else each.trigger


def checkpoint_line(each: CheckpointSummary) -> str:
    """Return a checkpoint's id, time, reason and progress."""
    why = reason(each)
    return f"{each.id} {each.timestamp[:19]}Z {each.progress_percent}%: {why}"


_AWAY = (
    "Continue your own work without it; nothing that it stored is lost. Ask your user to run:"
    " fleetctl daemon start. Then call again."
)
# Words in hints that are for users or programs.
_FOR_OTHERS = ("fleetctl", "rpc.")


def error_line(error: FleetError) -> str:
    """Return the text of a tool's error on one line, even if it quotes text from others."""
    return clean(_error_text(error))


def _error_text(error: FleetError) -> str:
    if isinstance(error, LockConflict) and isinstance(
        held := error.values.get("existing_lock"), dict
    ):
        return _conflict(held, error.values.get("file", held.get("file")))
    if isinstance(error, Unavailable):
        return f"{error.message.partition(' Start it with')[0]} {_AWAY}"
    end = "" if error.message.endswith((".", "!", "?")) else "."
    return " ".join(filter(None, (error.message + end, _next(error))))


def _next(error: FleetError) -> str:
    """Return what to do next in terms of tools: an agent reads this and types no commands."""
    if not any(each in error.hint for each in _FOR_OTHERS):
        return error.hint
    if isinstance(owner := error.values.get("assigned_to"), str):
        return f"Leave it to {owner}, or ask {owner} with send."
    if isinstance(error, NotFound):
        return "Call mission, inbox or agents for valid ids."
    return ""


def _conflict(held: dict[str, Any], file: object) -> str:
    """Return who holds a file, under the name that the agent asked for."""
    holder, file = held.get("held_by"), escaped(str(file))
    purpose, other = quote(str(held.get("purpose"))), escaped(str(held.get("file")))
    wide = held.get("directory") is not None or file.endswith("/") or "*" in file or "?" in file
    what = f"{file} overlaps {other}, which" if wide and other != file else file
    return (
        f"{what} is held by {holder} ({purpose}) {until(held.get('expires_at'))}."
        f" Do not edit it. Work on something else, call lock with wait_s to wait for it, or ask"
        f" {holder} with send."
    )


def until(expires_at: str | None) -> str:
    """Return when a lease ends, as a time of day and as a duration from now."""
    if expires_at is None:
        return "without a known end"
    left = datetime.fromisoformat(expires_at) - datetime.now(UTC)
    seconds = max(0, round(left.total_seconds()))
    return f"until {expires_at[11:19]}Z ({duration(seconds * 1_000)})"
