"""Recovery briefing: a recovery context, and the facts that go with it, as text for an agent.

It states facts and gives no orders beyond its closing sentence. Text from other agents is quoted,
so that it cannot pass for instructions, and control characters are removed.
"""

import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from ...protocol.display import (
    LINE_CHARS,
    ago,
    clean,
    duration,
    path,
    quote,
    short,
    short_ends,
    verbatim,
    verbatim_end,
)
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
from ..core.event_log import data_of, happened_at
from ..core.tx import Row, Tx
from ..locks.keys import display_file
from ..missions.selection import is_automatic
from ..notes.briefing import note_lines
from ..snapshots import recovery_context
from ..snapshots.plan_steps import FAILED_FIRST
from ..snapshots.recovery_context import snapshot_scope
from .context_builder import build, is_unknown, sees_whole_mission
from .prompt_layout import LEAST_CHARS, SHARE, Section, cut, render
from .restore_context import RestoreContext

BEFORE = "What Your User Said Before"
# How many events of a kind are read to find its newest.
LOOKED_AT = 50
COMMANDS, PROMPTS, ANSWERS = 6, 5, 20
# The most unhandled messages of one sender, and of all. The oldest come first.
MESSAGES_OF_ONE, MESSAGES = 5, 20
# The most characters of a task, path, result or name in a line, and of a sender's message.
ITEM_CHARS, MAIL_CHARS = 120, 160
CONFLICTS, HELD, SUBAGENTS = 5, 5, 3
# This many notes pinned by a person are never left out; no note is longer than this share.
PINNED, NOTE_SHARE = 3, 16
# A failed command's last output, and an answer, have at most this share of a prompt.
OUTPUT_SHARE, OUTPUT_CHARS = 6, 800
NAMED_CHARS = 60
ANSWER_SHARE, ANSWER_CHARS = 8, 1_000


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """The reader of a briefing: the agent, its mission and directory, and the size limit."""

    tx: Tx
    ctx: Context
    mission: Row
    agent_id: str | None
    known_id: str | None
    """The agent, or None if nothing names it: then the briefing tells what all agents did."""
    only_agent: str | None
    """The agent if it sees only its own part of the mission, else None."""
    max_chars: int

    @property
    def mission_id(self) -> str:
        """Return the mission."""
        return str(self.mission["id"])

    def ago(self, at: str) -> str:
        """Return how long ago a time was."""
        return ago(self.ctx.now_ms - to_ms(at))

    @property
    def roots(self) -> list[str]:
        """Return the directories that are left out of file names, each with its slash."""
        places = (self.ctx.facts.here.place, self.mission["project_dir"])
        return [f"{place.rstrip('/')}/" for place in places if place]

    def file(self, name: str) -> str:
        """Return a file's name relative to the repository, else unchanged."""
        root = next(filter(name.startswith, self.roots), "")
        return path(name.removeprefix(root))

    def line(self, text: str) -> str:
        """Return a sentence with the names of its files shortened in this way."""
        for root in self.roots:
            text = text.replace(f" {root}", " ")
        return text

    def newest(self, kind: str, most: int) -> list[Row]:
        """Return the newest events of a type that this reader may see, newest first."""
        return newest(self.tx, self.mission_id, kind, self.only_agent, most)


class Instructions(msgspec.Struct, frozen=True):
    """The newest instruction with the answers around it, and the instructions before it."""

    task: list[str]
    before: list[str]


class Command(msgspec.Struct, frozen=True):
    """How an agent's command ended, and when; ``result`` is empty if only its end is known."""

    agent_id: str | None
    name: str
    result: str
    at: str
    error: str = ""
    background: bool = False


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
    """Return the recovery context that a request asks for, and its text.

    ``restore`` is the recovery that just took place, if one did, and ``progress_note`` its result.
    """
    context = build(tx, ctx, mission, sorties, checkpoint, request.agent_id, restore)
    agent_id = request.agent_id
    reader = Reader(
        tx=tx,
        ctx=ctx,
        mission=mission,
        agent_id=agent_id,
        known_id=None if agent_id is None or is_unknown(tx, agent_id, sorties) else agent_id,
        only_agent=None if sees_whole_mission(tx, agent_id, sorties) else agent_id,
        max_chars=request.max_chars or ctx.config.prompt.max_chars,
    )
    instructions = _instructions(reader)
    sections = _sections(reader, sorties, context, instructions, restore)
    head = partial(_head, reader, context, progress_note)
    newest_task = instructions.task[0] if instructions.task else ""
    return context, render(head, sections, newest_task, reader.max_chars, mission["id"])


def _head(reader: Reader, context: RecoveryContext, note: str, limit: int) -> str:
    done, total = reader.mission["completed_sorties"], reader.mission["total_sorties"]
    last = short(reader.line(context.last_action), limit)
    lines = [
        f"**Mission**: {short(context.mission_summary, limit)}",
        f"**Progress**: {percent(done, total)}% ({done}/{total} sorties complete){note}",
        f"**Last Action**: {last or 'Unknown'}",
    ]
    return "\n".join(lines)


def _sections(
    reader: Reader,
    sorties: Sequence[SortieState],
    context: RecoveryContext,
    instructions: Instructions,
    restore: RestoreContext | None,
) -> list[Section]:
    """Return the sections of a briefing in their order; the first four are in every one."""
    mission_id, agent_id = reader.mission_id, reader.agent_id
    show = f"fleetctl mission show {mission_id}"
    list_sorties = f"fleetctl sortie list --mission {mission_id}"
    list_events = f"fleetctl events --mission {mission_id}"
    titles = titles_for(reader.tx, reader.mission, agent_id)
    commands = _commands(reader, reader.only_agent)
    # A reader who oversees others works on its own failures, and only reads about theirs.
    failing = _failing(_commands(reader, reader.known_id))
    steps = [each for each in context.next_steps if not _looks_at(each, failing)]
    longest = max(reader.max_chars // NOTE_SHARE, LEAST_CHARS)
    notes = note_lines(reader.tx, mission_id, agent_id, longest)
    mail, unread = _mail(reader)
    others = [*_met(reader), *_held_by_others(reader), *_fleet(reader, sorties)]
    last_activity = context.last_activity_at
    time = [
        f"- Elapsed: {duration(context.elapsed_time_ms)}",
        f"- Last activity: {last_activity} ({reader.ago(last_activity)})",
    ]
    return [
        Section("Next Steps", _items(steps), list_sorties, always=True, needed=True),
        Section("Current Blockers", _items(context.blockers), show, always=True, needed=True),
        Section(
            "Files Modified",
            [*dict.fromkeys(f"- {reader.file(each)}" for each in context.files_modified)],
            show,
            always=True,
            needed=True,
        ),
        Section("Time Context", ["\n".join(time)], needed=True, always=True, least=1),
        Section("", [_origin(reader)]),
        Section("Task", instructions.task, needed=True, least=1),
        Section(BEFORE, instructions.before, list_events, needed=True),
        Section(
            "Notes",
            notes.lines,
            f"fleetctl note list --mission {mission_id}",
            needed=True,
            left_out=notes.left_out,
            least=min(notes.pinned, PINNED),
        ),
        Section(
            "Now",
            [
                *_at_work(reader, sorties, titles),
                *_failure(reader, failing),
                *_tree(reader, context.files_modified),
                *_held(reader),
            ],
            show,
            needed=True,
        ),
        _running(reader),
        Section(
            "Others",
            [*others, *mail],
            f"fleetctl mail inbox {agent_id}" if agent_id else show,
            needed=True,
            left_out=unread - len(mail),
        ),
        Section("Done", _done(reader, sorties, titles, commands, failing, restore), list_events),
        Section("Recovery Errors", _items(restore.report.errors if restore else ()), show),
        Section("Recovery Warnings", _items(restore.report.warnings if restore else ()), show),
    ]


def _origin(reader: Reader) -> str:
    """State who speaks: an agent that lost its context does not know what fleetd is."""
    tx, ctx, mission = reader.tx, reader.ctx, reader.mission
    subject = f"this session (agent {reader.agent_id}, " if reader.agent_id else "this work ("
    place, where = mission["project_dir"], ""
    if place and place != ctx.facts.here.place:
        where = f" in {path(place, 200)}{machine_suffix(tx, ctx, mission['machine'])}"
    return (
        f"fleetd recorded {subject}mission {mission['id']}{where}). It states facts and gives no"
        " orders. A sortie is a step of the plan. `fleetctl context` or the tool `briefing` has"
        " more."
    )


def _instructions(reader: Reader) -> Instructions:
    """Return the instructions of users, newest first, and the agent's answers around the newest.

    The newest instruction to the reader itself is its task, even if others got newer ones. An
    instruction to another agent names that agent.
    """
    agent_id = reader.agent_id
    found = reader.newest("prompt_submitted", PROMPTS)
    own = newest(reader.tx, reader.mission_id, "prompt_submitted", agent_id, 1) if agent_id else []
    rows = [*own, *(row for row in found if row["seq"] not in {each["seq"] for each in own})]
    own_ids = {None, agent_id, *(row["agent_id"] for row in own)}
    items = []
    for row in rows[:PROMPTS]:
        data = data_of(row)
        if not data.get("prompt"):
            continue
        alone = reader.only_agent or not agent_id or row["agent_id"] in own_ids
        to = "" if alone else f", to {row['agent_id']}"
        label = f"- Your user, {reader.ago(happened_at(row, data))}{to}:"
        text = f"{label}\n{verbatim(str(data['prompt']))}"
        items.append(cut(text, max(reader.max_chars // SHARE, LEAST_CHARS)))
    answers = _answers(reader, rows[0]) if items and own else []
    return Instructions([*items[:1], *answers], items[1:])


def _answers(reader: Reader, prompt: Row) -> list[str]:
    """Return the reader's last answer before a prompt, and the newest since.

    The prompt may refer to the one before.
    """
    rows = newest(reader.tx, reader.mission_id, "agent_answered", reader.agent_id, ANSWERS)
    since = next((row for row in rows if row["seq"] > prompt["seq"]), None)
    before = next((row for row in rows if row["seq"] < prompt["seq"]), None)
    most = max(min(reader.max_chars // ANSWER_SHARE, ANSWER_CHARS), LEAST_CHARS)
    return [
        f"- {_possessive(reader, row)} answer {when}, {reader.ago(happened_at(row, data))}:"
        f"\n{verbatim_end(text, most)}"
        for when, row in (("before that", before), ("since", since))
        if row is not None and (text := str((data := data_of(row)).get("message") or "").strip())
    ]


def _possessive(reader: Reader, row: Row) -> str:
    """Return whose answer it was: the reader also sees those of its predecessors."""
    return "Your" if row["agent_id"] == reader.agent_id else f"{row['agent_id']}'s"


def _at_work(reader: Reader, sorties: Sequence[SortieState], titles: Titles) -> list[str]:
    """List the sorties that the reader works on, with what it needs to report on them.

    The plan of a session is the session's own, and its steps are among the next ones.
    """
    items = []
    for sortie in sorties:
        if sortie.status not in ("in_progress", "blocked") or reader.agent_id is None:
            continue
        if sortie.assigned_to != reader.agent_id:
            continue
        files = short(", ".join(map(reader.file, sortie.files)), 200)
        if files or not is_automatic(reader.mission):
            line = f"- {sortie.id} ({short(titles.of(sortie), ITEM_CHARS)})"
            items.append(f"{line}: {files}" if files else line)
    return items


def _tree(reader: Reader, modified: Sequence[str]) -> list[str]:
    """Describe the branch, the commit, and changed files that were not named yet."""
    tree = reader.ctx.facts.working_tree
    if tree is None:
        return []
    named = {reader.file(each) for each in modified}
    changed = [_name(line) for line in tree.changed]
    # For a new directory, Git names only the directory.
    open_ = {each for each in named if any(_covers(place, each) for place in changed)}
    entries = sorted(open_) if named - open_ else ["the files above"] * bool(open_)
    entries += [
        line.strip()
        for line, place in zip(tree.changed, changed, strict=True)
        if not any(_covers(place, each) for each in open_)
    ]
    if tree.more:
        entries.append(f"{tree.more} more files")
    commit = f", commit {tree.commit}" if tree.commit else ""
    what = f"uncommitted: {', '.join(entries)}" if entries else "nothing uncommitted"
    return [f"- Branch {tree.branch}{commit}; {what}"]


def _name(line: str) -> str:
    """Return the file or new directory that a line of Git's status is about."""
    name = line[3:].rpartition(" -> ")[2]
    # Git puts a name with a blank into quotation marks.
    return name.removeprefix('"').removesuffix('"').rstrip("/")


def _covers(place: str, file: str) -> bool:
    """Return whether a place that Git names is a file, or a directory that it is in."""
    return file == place or file.startswith(f"{place}/")


def _failure(reader: Reader, failing: Command | None) -> list[str]:
    """Describe the last failed command that has not passed since, with the end of its output."""
    if failing is None:
        return []
    line = f"- {_name_of(reader, failing)} failed {reader.ago(failing.at)}"
    if len(failing.error.splitlines()) <= 1:
        error = short_ends(failing.error, LINE_CHARS)
        return [f"{line}: {quote(error)}" if error else line]
    most = max(min(reader.max_chars // OUTPUT_SHARE, OUTPUT_CHARS), LEAST_CHARS)
    return [f"{line}; its output ends:\n{verbatim_end(failing.error, most)}"]


def _looks_at(step: str, failing: Command | None) -> bool:
    """Return whether a next step repeats a failure that has its own line already."""
    if failing is None:
        return False
    # The step has only the beginning of a long command, in quotes if another agent recorded it.
    name = quote(failing.name[:NAMED_CHARS])[1:-1]
    return any(f"{FAILED_FIRST}{mark}{name}" in step for mark in ("“", ""))


def _failing(commands: Sequence[Command]) -> Command | None:
    """Return the newest command that failed and has not passed since."""
    passed = set()
    for command in commands:
        which = command.agent_id, command.name
        if command.result == "FAIL" and which not in passed:
            return command
        if command.result == "PASS":
            passed.add(which)
    return None


def _running(reader: Reader) -> Section:
    """List what runs for the reader in the background, newest first, and nothing else."""
    agent_id = reader.agent_id
    works, more = running.living(reader.tx, agent_id) if agent_id else ([], 0)
    items = [_work(reader, work) for work in works]
    show = f"fleetctl agent show {agent_id}"
    # A reader that forgets what runs would start it again.
    return Section("Running For You", items, show, needed=True, left_out=more)


def _work(reader: Reader, work: RunningWork) -> str:
    text = f" {quote(work.told, ITEM_CHARS)}" if work.told else ""
    output = f", output in {path(work.output, 200)}" if work.output else ""
    return f"- {work.kind} {short(work.id, 64)}{text}: last sign {reader.ago(work.seen_at)}{output}"


def _met(reader: Reader) -> list[str]:
    """Name in one line the reader's files that other agents changed within the last hour."""
    found = conflicts_of_reader(reader.tx, reader.ctx, reader.mission_id, reader.agent_id)
    if not found:
        return []
    named = []
    for conflict in found[:CONFLICTS]:
        edits = [edit for edit in conflict.edits if edit.agent_id != reader.agent_id]
        editors = ", ".join(edit.agent_id for edit in edits[:CONFLICTS])
        more = " and others" if len(edits) > CONFLICTS else ""
        together = len({(edit.machine, edit.path) for edit in conflict.edits}) < len(conflict.edits)
        beside = "some in one directory, others " if together else ""
        merge = f"; {beside}will meet at merge" if conflict.at_merge else ""
        file = path(reader.file(conflict.file), ITEM_CHARS)
        named.append(f"{file} (by {editors}{more}{merge})")
    more = f", and {len(found) - CONFLICTS} more" if len(found) > CONFLICTS else ""
    return [f"- Changed within the hour also by others: {', '.join(named)}{more}"]


def _held(reader: Reader) -> list[str]:
    """List the locks of the reader, the longest held first."""
    if reader.agent_id is None:
        return []
    rows = _locks(reader, "held_by = :agent", agent=reader.agent_id)
    return [
        f"- You hold {path(display_file(reader.tx, reader.ctx, row), 200)}"
        f"{_purpose(row)} for {duration(to_ms(row['expires_at']) - reader.ctx.now_ms)} more"
        for row in rows
    ]


def _held_by_others(reader: Reader) -> list[str]:
    """List the files of the mission's project that others hold."""
    where = "mission_id = :mission AND held_by <> :agent"
    agent_id = reader.agent_id or ""
    rows = _locks(reader, where, mission=reader.mission_id, agent=agent_id)
    lines = [
        f"- {row['held_by']} holds {path(display_file(reader.tx, reader.ctx, row), 200)}"
        f"{_purpose(row)}"
        for row in rows[:HELD]
    ]
    more = len(rows) - len(lines)
    return [*lines, f"- Others hold {more} more files"] if more else lines


def _purpose(row: Row) -> str:
    return "" if row["purpose"] == "edit" else f" ({quote(row['purpose'], 200)})"


def _locks(reader: Reader, where: str, **params: str) -> list[Row]:
    return reader.tx.all(
        f"SELECT * FROM locks WHERE {where} AND status = 'active' AND expires_at > :now"
        " ORDER BY acquired_at, id",
        **params,
        now=reader.ctx.now,
    )


def _fleet(reader: Reader, sorties: Sequence[SortieState]) -> list[str]:
    """Name the agents whose work the reader took over, and the progress of the others."""
    agent_id = reader.agent_id
    if agent_id is None:
        return []
    rows = reader.tx.all("SELECT id FROM agents WHERE succeeded_by = :agent", agent=agent_id)
    lines = [f"- You took over from {', '.join(sorted(row['id'] for row in rows))}"] if rows else []
    others = [s for s in sorties if s.assigned_to != agent_id]
    if reader.only_agent and others:
        agents = sorted({s.assigned_to for s in others if s.assigned_to})
        done = sum(s.status == "completed" for s in others)
        suffix = f" with {', '.join(agents[:5])}" if agents else ""
        lines.append(
            f"- The rest of the fleet: {done}/{len(others)} other sorties complete{suffix}"
        )
    return lines


def _mail(reader: Reader) -> tuple[list[str], int]:
    """List queued mail, and read but unacknowledged mail: reading alone does not count.

    Every sender's oldest message comes first, then every sender's second, so that no sender pushes
    another one out. Also return the total number.
    """
    if reader.agent_id is None:
        where, params = "m.mission_id = :mission", {"mission": reader.mission_id}
    else:
        where, params = "d.agent_id = :agent", {"agent": reader.agent_id}
    rows = reader.tx.all(
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
        to = "" if reader.agent_id else f" to {row['recipient']}"
        first = next(filter(None, map(clean, (row["body"] or "").splitlines())), "")
        body = f": {quote(first, MAIL_CHARS)}" if first else ""
        line = f"- Mail from {row['sender']}{to}, {reader.ago(row['sent_at'])}"
        items.append(f"{line}: {quote(row['subject'], MAIL_CHARS)}{body}")
    return items, int(rows[0]["total"]) if rows else 0


def _done(
    reader: Reader,
    sorties: Sequence[SortieState],
    titles: Titles,
    commands: Sequence[Command],
    failing: Command | None,
    restore: RestoreContext | None,
) -> list[str]:
    """List what is done, newest first: sorties, answers of subagents, results of commands."""
    done = [s for s in sorties if s.status == "completed"]
    done = [s for s in done if reader.only_agent in (None, s.assigned_to)]
    done.sort(key=lambda s: s.completed_at or "", reverse=True)
    kept, _ = shares(done, titles, OF_ONE)
    inner = (
        running.answers_of_subagents(reader.tx, reader.agent_id, SUBAGENTS)
        if reader.agent_id
        else []
    )
    ran = [(each.at, _ran(reader, each)) for each in commands if each != failing]
    if reader.agent_id:
        until = restore.rewind_seq if restore else None
        scope = snapshot_scope(reader.tx, reader.mission, reader.agent_id, until)
        declared = recovery_context.declared_outcomes(reader.tx, scope, COMMANDS)
        outcomes = [(at, f"{line}, {reader.ago(at)}") for at, line in declared]
        ran = [*heapq.merge(ran, outcomes, key=lambda each: each[0], reverse=True)]
    return [
        *(_completed(s, titles) for s in kept),
        *(
            f"- Subagent {quote(task, ITEM_CHARS)} answered: {quote(answer)}"
            for task, answer in inner
        ),
        *(line for _, line in ran[:COMMANDS]),
    ]


def _completed(sortie: SortieState, titles: Titles) -> str:
    result = f": {quote(sortie.result, ITEM_CHARS)}" if sortie.result else ""
    return f"- {short(titles.of(sortie), 200)}{result}"


def _ran(reader: Reader, command: Command) -> str:
    ended = {"PASS": "passed", "FAIL": "failed"}.get(command.result, "ended")
    if command.background:
        ended = "started in the background"
    return f"- {_name_of(reader, command)} {ended} {reader.ago(command.at)}"


def _name_of(reader: Reader, command: Command) -> str:
    """Return a command's name, with its agent unless that is the reader."""
    suffix = f" of {command.agent_id}" if command.agent_id not in (None, reader.agent_id) else ""
    return f"{short(command.name, ITEM_CHARS)}{suffix}"


def _commands(reader: Reader, agent_id: str | None) -> list[Command]:
    """Return how the commands of an agent, or of all, ended: newest first, each call once."""
    # Some harnesses report the end of a command in a second event; the newer one knows more.
    once: dict[Any, Command] = {}
    rows = newest(reader.tx, reader.mission_id, "command_finished", agent_id, LOOKED_AT)
    for row in rows:
        data = data_of(row)
        call_id = data.get("call_id")
        once.setdefault(call_id if isinstance(call_id, str) else row["seq"], _command(data, row))
    return list(once.values())


def _command(data: dict[str, Any], row: Row) -> Command:
    return Command(
        agent_id=row["agent_id"],
        name=str(data.get("command") or data.get("name") or "command"),
        result=str(data.get("result") or ""),
        at=happened_at(row, data),
        error=str(data.get("error") or ""),
        background=data.get("background") is True,
    )


def _items(texts: Sequence[str]) -> list[str]:
    return [f"- {line}" for text in texts if (line := short(text))]
