"""The recovery prompt: a recovery context, and what goes with it, as text for an agent.

It states facts and gives no orders beyond its closing sentence. Text that came from other agents
is quoted, so that it cannot pass for instructions, and control characters are removed.
"""

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec

from ...protocol.display import LINE_CHARS, duration, path, quote, short, verbatim
from ...protocol.records import Checkpoint, RecoveryContext, SortieState, percent
from ...protocol.requests.attention import RunningWork
from ...protocol.requests.recovery import RecoveryContextGet, RecoveryRestore
from ...protocol.timestamps import to_ms
from ..attention import running
from ..attention.conflicts import conflicts_of_reader
from ..checkpoints.derived_context import OF_ONE, newest
from ..checkpoints.narrative import Titles, shares, titles_for
from ..cluster.membership import machine_suffix
from ..core.context import Context
from ..core.event_log import data_of
from ..core.tx import Row, Tx
from ..locks.keys import display_file
from ..snapshots import recovery_context
from ..snapshots.recovery_context import SnapshotScope, snapshot_scope
from .context_builder import build, sees_whole_mission
from .restore_context import RestoreContext

Head = Callable[[int], str]
"""Returns the head of a prompt, its lines cut to so many characters."""
OPENING = "## Recovery Context\n\nYou are resuming a mission after context compaction."
SAID = "What Your User Said"
# Into how many parts a prompt is divided of which no section may have more than one.
SHARE = 4
LEAST_SAID = 80
COMMANDS = 10
PROMPTS = 5
# Of one sender, and of all: mail that is not dealt with, the oldest first.
MESSAGES_OF_ONE, MESSAGES = 5, 20
# Of what runs for an agent, the characters of what it was told.
TOLD_CHARS = 120
CONFLICTS = 5
CLOSING = "Please review the current state and continue the mission."


class Section(msgspec.Struct):
    """A heading with its items; ``command`` shows the items that had no room.

    ``always`` keeps the heading when there is nothing to say (``- None``). ``needed`` sections
    are shortened last. ``least`` items are never left out.
    """

    heading: str
    items: list[str]
    command: str = ""
    always: bool = False
    needed: bool = False
    left_out: int = 0
    least: int = 0
    chars: int = 0
    """How many characters the items have: counted anew at each cut, a long list would take long."""

    def __post_init__(self) -> None:
        """Count the items' characters."""
        self.chars = sum(map(len, self.items))

    def text(self) -> str:
        """Return the section as Markdown, empty when there is nothing to say."""
        lines = [*self.items, *self._end()]
        return "\n".join([f"### {self.heading}", *lines]) if lines else ""

    @property
    def length(self) -> int:
        """Return how long ``text`` is, of a section that has something to say."""
        end = self._end()
        return (
            len(f"### {self.heading}") + self.chars + len(self.items) + sum(len(e) + 1 for e in end)
        )

    def _end(self) -> list[str]:
        """Return the line behind the items, if there is one."""
        if self.left_out:
            shown = f": {self.command}" if self.command else ""
            return [f"- ({self.left_out} more{shown})"]
        return ["- None"] if self.always and not self.items else []

    @property
    def spare(self) -> bool:
        """Whether an item can be left out."""
        return len(self.items) > self.least

    def drop_last(self) -> None:
        """Leave the last item out."""
        self.chars -= len(self.items.pop())
        self.left_out += 1


def brief(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    checkpoint: Checkpoint | None,
    request: RecoveryRestore | RecoveryContextGet,
    restore: RestoreContext | None = None,
    progress_note: str = "",
) -> tuple[RecoveryContext, str]:
    """Return the recovery context that a request asks for, and the prompt that says it.

    ``restore`` is the recovery that just took place, if one did, and ``progress_note`` what it did.
    """
    context = build(tx, ctx, mission, sorties, checkpoint, request.agent_id, restore)
    max_chars = request.max_chars or ctx.config.prompt.max_chars
    sections = _sections(tx, ctx, mission, sorties, context, request.agent_id, max_chars, restore)
    taken_over_from = restore.request.take_over_from if restore else None
    head = partial(_head, mission, context, progress_note, taken_over_from)
    return context, render(head, sections, max_chars, mission["id"])


def render(head: Head, sections: list[Section], max_chars: int, mission_id: str) -> str:
    """Return the prompt, never longer than ``max_chars`` characters.

    What is needed most stays, and what the user said last; the rest is shortened from the bottom,
    item by item, and each cut says how many items were left out and which command shows them. No
    section keeps more than its share while others are cut: nobody fills a prompt by talking much.
    """
    excess = len(_join(head, sections)) - max_chars
    while excess > 0 and (section := _next_to_cut(sections, max_chars // SHARE)):
        excess -= section.length
        section.drop_last()
        excess += section.length
    text = _join(head, sections)
    return text if len(text) <= max_chars else _bare(head, sections, max_chars, mission_id)


def _bare(head: Head, sections: list[Section], max_chars: int, mission_id: str) -> str:
    """Return the head and where the rest is: below some 700 characters headings have no room."""
    left_out = sum(section.left_out for section in sections)
    rest = f"- ({left_out} items left out: fleetctl context --mission {mission_id})"
    newest = next((s.items[0] for s in sections if s.heading == SAID and s.items), "")
    text = ""
    for said, limit in ((newest, 100), (newest, 60), (newest, 30), ("", 100), ("", 30), ("", 10)):
        top = [OPENING, head(limit)]
        text = "\n\n".join([*top, rest, CLOSING])
        room = max_chars - len(text) - len(f"\n\n### {SAID}\n")
        if said and room >= min(len(said), LEAST_SAID):
            return "\n\n".join([*top, f"### {SAID}\n{_cut(said, room)}", rest, CLOSING])
        if not said and len(text) <= max_chars:
            break
    return text


def _next_to_cut(sections: list[Section], share: int) -> Section | None:
    """Return what loses its last item next: what has more than its share, the longest first.

    Then the lowest that can go, else the longest needed one. So a long list of steps never pushes a
    blocker out.
    """
    spare = [s for s in sections if s.spare]
    longest = max(spare, key=lambda s: s.chars, default=None)
    if longest is not None and longest.chars > share:
        return longest
    return next((s for s in spare[::-1] if not s.needed), None) or longest


def _join(head: Head, sections: list[Section]) -> str:
    parts = [OPENING, head(LINE_CHARS), *(text for s in sections if (text := s.text()))]
    return "\n\n".join([*parts, CLOSING])


def _head(
    mission: Row, context: RecoveryContext, note: str, taken_over_from: str | None, limit: int
) -> str:
    done, total = mission["completed_sorties"], mission["total_sorties"]
    lines = [
        f"**Mission**: {short(context.mission_summary, limit)}",
        f"**Progress**: {percent(done, total)}% ({done}/{total} sorties complete){note}",
        f"**Last Action**: {short(context.last_action, limit) or 'Unknown'}",
    ]
    if taken_over_from:
        lines.append(f"**Work Taken Over From**: {taken_over_from}")
    return "\n".join(lines)


def _sections(
    tx: Tx,
    ctx: Context,
    mission: Row,
    sorties: Sequence[SortieState],
    context: RecoveryContext,
    agent_id: str | None,
    max_chars: int,
    restore: RestoreContext | None,
) -> list[Section]:
    """Return the parts of a prompt for an agent, or for whoever looks after the mission."""
    mission_id = mission["id"]
    show = f"fleetctl mission show {mission_id}"
    list_sorties = f"fleetctl sortie list --mission {mission_id}"
    list_locks = f"fleetctl lock list --mission {mission_id}"
    list_events = f"fleetctl events --mission {mission_id}"
    only_agent = None if sees_whole_mission(tx, agent_id, sorties) else agent_id
    rewind_seq = restore.rewind_seq if restore else None
    reader = snapshot_scope(tx, mission, agent_id, rewind_seq) if agent_id else None
    titles = titles_for(tx, mission, agent_id)
    given = [s for s in sorties if agent_id is not None and s.assigned_to == agent_id]
    own, more = shares(given, titles, OF_ONE)
    messages, unread = _messages(tx, mission_id, agent_id)
    time = [
        f"- Elapsed: {duration(context.elapsed_time_ms)}",
        f"- Last activity: {context.last_activity_at or 'unknown'}",
    ]
    about = [
        recovery_context.step_line(tx, reader, sorties) if reader else "",
        _fleet(sorties, only_agent) if only_agent else "",
        _place(tx, ctx, mission) if agent_id else "",
    ]
    run, *others = [[f"- {line}"] if line else [] for line in about]
    files = [f"- {path(each)}" for each in context.files_modified]
    said = _prompts(tx, mission_id, only_agent, agent_id)
    return [
        Section("Next Steps", _items(context.next_steps), list_sorties, always=True, needed=True),
        Section("Current Blockers", _items(context.blockers), show, always=True, needed=True),
        Section("Files Modified", files, show, always=True),
        Section("Time Context", time, show, needed=True, always=True),
        Section(
            "Your Sorties",
            [*run, *_own(own, titles), *chain(*others)],
            list_sorties,
            needed=True,
            left_out=sum(more.values()),
        ),
        Section("Locks You Hold", _locks(tx, ctx, mission_id, agent_id), list_locks),
        Section(
            "Messages Awaiting You",
            messages,
            "fleetctl mail inbox <agent>",
            left_out=unread - len(messages),
        ),
        Section("Recent Commands", _commands(tx, mission_id, only_agent, reader), list_events),
        Section(
            SAID,
            [_cut(text, max(max_chars // SHARE, LEAST_SAID)) for text in said],
            list_events,
            least=1,
        ),
        Section("Repository", _items(ctx.facts.repository), "git status"),
        Section("Recovery Errors", _items(restore.report.errors if restore else ()), list_locks),
        Section("Recovery Warnings", _items(restore.report.warnings if restore else ()), show),
        _running(tx, ctx, agent_id),
        Section("Conflicts", _conflicts(tx, ctx, mission_id, agent_id), "fleetctl conflicts"),
    ]


def _running(tx: Tx, ctx: Context, agent_id: str | None) -> Section:
    """Tell what runs for the reader beside its turn, the newest first; nothing more is said."""
    works, more = running.living(tx, agent_id) if agent_id else ([], 0)
    items = [_work(ctx, work) for work in works]
    show = f"fleetctl agent show {agent_id}"
    # Who forgets what runs starts it again.
    return Section("Running For You", items, show, needed=True, left_out=more)


def _work(ctx: Context, work: RunningWork) -> str:
    told = f" {quote(work.told, TOLD_CHARS)}" if work.told else ""
    seen = duration(ctx.now_ms - to_ms(work.seen_at))
    output = f", output in {path(work.output, 200)}" if work.output else ""
    return f"- {work.kind} {short(work.id, 64)}{told}: last sign {seen} ago{output}"


def _conflicts(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> list[str]:
    """Tell in one line which files of the reader other agents changed within the last hour."""
    found = conflicts_of_reader(tx, ctx, mission_id, agent_id)
    if not found:
        return []
    named = []
    for conflict in found[:CONFLICTS]:
        who = ", ".join(edit.agent_id for edit in conflict.edits[:CONFLICTS])
        more = " and others" if len(conflict.edits) > CONFLICTS else ""
        together = len({(edit.machine, edit.path) for edit in conflict.edits}) < len(conflict.edits)
        beside = "some in one directory, others " if together else ""
        merge = f"; {beside}will meet at merge" if conflict.at_merge else ""
        named.append(f"{path(conflict.file, TOLD_CHARS)} (changed by {who}{more}{merge})")
    more = f", and {len(found) - CONFLICTS} more" if len(found) > CONFLICTS else ""
    return [f"- {', '.join(named)}{more}"]


def _own(sorties: Sequence[SortieState], titles: Titles) -> list[str]:
    items = []
    for sortie in sorties:
        files = f" [{', '.join(map(path, sortie.files))}]" if sortie.files else ""
        told = f"{sortie.id} {short(titles.of(sortie), 200)}: {sortie.status}, {sortie.progress}%"
        note = f" — {quote(sortie.progress_notes)}" if sortie.progress_notes else ""
        items.append(f"- {told}{short(files, 200) and ' ' + short(files, 200)}{note}")
    return items


def _place(tx: Tx, ctx: Context, mission: Row) -> str:
    place = ""
    if mission["project_dir"]:
        where = machine_suffix(tx, ctx, mission["machine"])
        place = f" in {path(mission['project_dir'], 200)}{where}"
    return f"Mission {mission['id']}{place}"


def _fleet(sorties: Sequence[SortieState], agent_id: str) -> str:
    others = [s for s in sorties if s.assigned_to != agent_id]
    if not others:
        return ""
    agents = sorted({s.assigned_to for s in others if s.assigned_to})
    done = sum(s.status == "completed" for s in others)
    who = f" with {', '.join(agents[:5])}" if agents else ""
    return f"The rest of the fleet: {done}/{len(others)} other sorties complete{who}"


def _locks(tx: Tx, ctx: Context, mission_id: str, agent_id: str | None) -> list[str]:
    if agent_id is None:
        where, params = "mission_id = :mission", {"mission": mission_id}
    else:
        where, params = "held_by = :agent", {"agent": agent_id}
    rows = tx.all(
        f"SELECT * FROM locks WHERE {where} AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        **params,
        now=ctx.now,
    )
    return [
        f"- {path(display_file(tx, ctx, row), 200)} ({row['id']}, {short(row['purpose'], 200)}, "
        + ("" if agent_id else f"{row['held_by']}, ")
        + f"token {row['fencing_token']}, until {row['expires_at']})"
        for row in rows
    ]


def _messages(tx: Tx, mission_id: str, agent_id: str | None) -> tuple[list[str], int]:
    """Tell queued mail, and mail that was read but not acknowledged: reading is forgotten.

    Everybody's oldest message first, then everybody's second: nobody's mail pushes another's out.
    Also returns how much there is in all.
    """
    if agent_id is None:
        where, params = "m.mission_id = :mission", {"mission": mission_id}
    else:
        where, params = "d.agent_id = :agent", {"agent": agent_id}
    rows = tx.all(
        "SELECT m.*, owed.recipient, owed.place, owed.total FROM"
        " (SELECT d.message_id, d.agent_id AS recipient, d.seq AS place,"
        " row_number() OVER (PARTITION BY m.sender ORDER BY d.seq) AS nth,"
        " count(*) OVER () AS total"
        f" FROM deliveries d JOIN messages m ON m.id = d.message_id WHERE {where}"
        " AND d.status IN ('queued', 'delivered')) owed"
        " JOIN messages m ON m.id = owed.message_id WHERE owed.nth <= :of_one"
        " ORDER BY owed.nth, owed.place LIMIT :most",
        **params,
        of_one=MESSAGES_OF_ONE,
        most=MESSAGES,
    )
    items = []
    for row in rows:
        to = "" if agent_id else f" to {row['recipient']}"
        item = f"- {row['id']} from {row['sender']}{to}: {quote(row['subject'], 200)}"
        body = verbatim(row["body"], 600) if row["body"] else ""
        items.append(f"{item}\n{body}" if body else item)
    return items, int(rows[0]["total"]) if rows else 0


def _commands(
    tx: Tx, mission_id: str, agent_id: str | None, reader: SnapshotScope | None
) -> list[str]:
    """Tell how commands ended, newest first: by the log, and what only a client declared."""
    # Some harnesses tell how a command ended in a second event; the newer one knows more.
    once: dict[Any, tuple[str, dict[str, Any]]] = {}
    for row in newest(tx, mission_id, "command_finished", agent_id, 2 * COMMANDS):
        data = data_of(row)
        once.setdefault(data.get("call_id") or row["seq"], (_happened_at(data, row), data))
    told = [(at, _command(data, at)) for at, data in islice(once.values(), COMMANDS)]
    declared = recovery_context.declared_outcomes(tx, reader, COMMANDS) if reader else []
    both = heapq.merge(told, declared, key=lambda each: each[0], reverse=True)
    return [line for _, line in both][:COMMANDS]


def _happened_at(data: dict[str, Any], row: Row) -> str:
    """Return when an event happened: before it was recorded, if no daemon ran then."""
    return str(data.get("happened_at") or row["timestamp"])


def _command(data: dict[str, Any], at: str) -> str:
    name = short(str(data.get("command") or data.get("name") or "command"), 120)
    error = f" — {quote(str(data['error']), 120)}" if data.get("error") else ""
    ended = "started in the background" if data.get("background") is True else "finished"
    return f"- {name}: {short(str(data.get('result') or ''), 20) or ended}, {at}{error}"


def _prompts(tx: Tx, mission_id: str, only_agent: str | None, agent_id: str | None) -> list[str]:
    """Tell what users said last: the reader's own first, also where others were told more since.

    What another agent was told says to whom.
    """
    found = newest(tx, mission_id, "prompt_submitted", only_agent, PROMPTS)
    mine = newest(tx, mission_id, "prompt_submitted", agent_id, 1) if agent_id else []
    rows = [*mine, *(row for row in found if row["seq"] not in {each["seq"] for each in mine})]
    whose = {None, agent_id, *(row["agent_id"] for row in mine)}
    items = []
    for row in rows[:PROMPTS]:
        data = data_of(row)
        mine_alone = only_agent or not agent_id or row["agent_id"] in whose
        to = "" if mine_alone else f", to {row['agent_id']}"
        if data.get("prompt"):
            items.append(f"- {_happened_at(data, row)}{to}:\n{verbatim(str(data['prompt']))}")
    return items


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _items(texts: Sequence[str]) -> list[str]:
    return [f"- {line}" for text in texts if (line := short(text))]
