"""A report as a document: titles, lines and blocks, the same for Markdown and HTML.

Text from others is ``UntrustedText`` or a ``Block``. Both forms show it as such, so that it never
becomes markup. All other text is fleetctl's own.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from fleetd.protocol import endings
from fleetd.protocol.display import clean, clean_block
from fleetd.protocol.patterns import CLOSED_SORTIE, OPEN_MISSION

from ..output import times
from ..output.console import plural
from .usage import UsageRow

if TYPE_CHECKING:
    from ..client.models import (
        Agent,
        CompactionEffect,
        Mission,
        Note,
        Recovery,
        Report,
        ReportAgent,
        ReportCommand,
        ReportSortie,
    )

LINE_CHARS = 500
# Output of a failed command and an error message get less room than a prompt.
_ERROR_CHARS = 200
_KINDS = {
    "decision": "Decided",
    "ruled-out": "Ruled out",
    "constraint": "Constraint",
    "finding": "Found",
}
_UNKNOWN = "not recorded"


class UntrustedText(NamedTuple):
    """Text from others inside a line; ``shown`` is one line without control characters."""

    text: str

    @property
    def shown(self) -> str:
        """Return the text as it may be shown."""
        text = clean(self.text)
        return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


class Line(NamedTuple):
    """One line of a list."""

    parts: tuple["str | UntrustedText", ...]


class Block(NamedTuple):
    """Text from others on its own lines, below a line that names its author."""

    text: str

    @property
    def shown(self) -> str:
        """Return the text as it may be shown; line breaks stay."""
        return clean_block(self.text)


class Section(NamedTuple):
    """A part of a report; ``empty`` is its text when it has no content."""

    title: str
    content: list[Line | Block]
    empty: str = "Nothing is recorded."


class Document(NamedTuple):
    """A whole report; a form with pictures draws the timeline after the facts."""

    title: tuple[str | UntrustedText, ...]
    facts: list[Line]
    sections: list[Section]


def document_of(
    report: "Report", usage: list[UsageRow] | None, *, with_prompts: bool = True
) -> Document:
    """Return a report as a document; without prompts, it also omits answers, which quote them."""
    sections = [
        _asked(report) if with_prompts else None,
        _planned(report),
        _files(report),
        _commits(report),
        Section("Tests", _commands(report, tests=True), "No command that runs tests is recorded."),
        Section("Commands", _commands(report, tests=False), "No other command is recorded."),
        _decided(report),
        _left_open(report),
        _compactions(report),
        _errors(report),
        _time(report, with_prompts=with_prompts),
        _tokens(usage) if usage is not None else None,
    ]
    return Document(
        title=_title(report, with_prompts=with_prompts),
        facts=_facts(report, with_prompts=with_prompts),
        sections=[section for section in sections if section is not None],
    )


def title_of(mission: "Mission", *, with_prompts: bool) -> str:
    """Return a mission's title; a title that fleetd took from a prompt counts as a prompt."""
    if mission.origin == "session" and not with_prompts:
        return f"a session's mission, {mission.id}"
    return mission.title


def moment(at: str | None) -> str:
    """Return a timestamp of the protocol to the minute."""
    return at[:16].replace("T", " ") if at else "?"


def _line(*parts: str | UntrustedText) -> Line:
    return Line(tuple(part for part in parts if part))


def _title(report: "Report", *, with_prompts: bool) -> tuple[str | UntrustedText, ...]:
    if report.mission is not None:
        return "Report of the mission ", UntrustedText(
            title_of(report.mission, with_prompts=with_prompts)
        )
    return "Report of the agent ", UntrustedText(report.agent.id if report.agent else "?")


def _facts(report: "Report", *, with_prompts: bool) -> list[Line]:
    lines = [_line(f"Made {moment(report.generated_at)}; all times are in UTC")]
    if report.mission is not None:
        lines.append(
            _line("Mission ", UntrustedText(report.mission.id), f", {_state(report.mission)}")
        )
    else:
        lines += [
            _line(
                "Mission ",
                UntrustedText(title_of(each, with_prompts=with_prompts)),
                " (",
                UntrustedText(each.id),
                f"), {_state(each)}",
            )
            for each in report.missions
        ]
    if report.agent is not None:
        lines.append(_line("Agent ", *_agent_parts(report.agent)))
    done = sum(each.status == "completed" for each in report.planned)
    older = f", and {report.omitted.planned} older" if report.omitted.planned else ""
    lines += [
        _line(f"From {moment(report.first_at)} to {moment(report.last_at)}"),
        _line(f"{done} of {plural(len(report.planned), 'sortie')} completed{older}"),
        _line(
            f"{plural(len(report.files) + report.omitted.files, 'file')} changed,"
            f" {plural(len(report.commits) + report.omitted.commits, 'commit')},"
            f" {plural(sum(each.test for each in report.commands), 'command')} that"
            f" {'runs' if sum(each.test for each in report.commands) == 1 else 'run'} tests"
        ),
    ]
    omitted: dict[str, int] = dict(report.omitted)  # type: ignore[call-overload]
    if any(omitted.values()):
        lines.append(_line("Of long lists, this report has the newest items"))
    return lines


def _state(mission: "Mission") -> str:
    return _words(endings.state(mission.status, mission.closed_reason))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _agent_parts(agent: "Agent") -> Iterator[str | UntrustedText]:
    yield UntrustedText(agent.id)
    details = [agent.role, *([agent.harness] if agent.harness else []), agent.status]
    yield ": "
    yield UntrustedText(", ".join(details))


def _asked(report: "Report") -> Section:
    content: list[Line | Block] = []
    for each in report.asked:
        to = (" to ", UntrustedText(each.agent_id)) if each.agent_id else ()
        content += [_line(moment(each.at), *to), Block(each.text)]
    return Section("Asked", [*content, *_more(report.omitted.asked, "earlier prompt")])


def _planned(report: "Report") -> Section:
    content: list[Line | Block] = [_sortie(each) for each in report.planned]
    more = _more(report.omitted.planned, "further sortie")
    return Section("Planned", [*content, *more], "No sortie is recorded.")


def _sortie(sortie: "ReportSortie") -> Line:
    parts: list[str | UntrustedText] = [f"{_words(sortie.status)}: ", UntrustedText(sortie.title)]
    if sortie.assigned_to:
        parts += [", by ", UntrustedText(sortie.assigned_to)]
    if sortie.status not in CLOSED_SORTIE and sortie.progress:
        parts.append(f", {sortie.progress}%")
    if sortie.started_at:
        until = moment(sortie.completed_at) if sortie.completed_at else "now"
        parts.append(f", {moment(sortie.started_at)} to {until}")
    remark = sortie.blocked_reason or sortie.result or sortie.progress_notes
    if remark:
        parts += [" — ", UntrustedText(remark)]
    return _line(*parts)


def _files(report: "Report") -> Section:
    content: list[Line | Block] = [
        _line(
            UntrustedText(each.file),
            f", {plural(each.changes, 'change')}, by ",
            *_names(each.agents),
            f", last {moment(each.last_at)}",
        )
        for each in report.files
    ]
    more = _more(report.omitted.files, "further file")
    return Section("Files", [*content, *more], "No change of a file is recorded.")


def _names(names: Iterable[str]) -> Iterator[str | UntrustedText]:
    for number, name in enumerate(names):
        if number:
            yield ", "
        yield UntrustedText(name)


def _commits(report: "Report") -> Section:
    content: list[Line | Block] = []
    for each in report.commits:
        attribution: tuple[str | UntrustedText, ...] = (
            (" ", UntrustedText(each.agent_id)) if each.agent_id else ()
        )
        result = f", {each.result}: " if each.result else ": "
        content.append(_line(moment(each.at), *attribution, result, UntrustedText(each.command)))
    more = _more(report.omitted.commits, "earlier commit")
    return Section("Commits", [*content, *more], "No git commit of an agent is recorded.")


def _commands(report: "Report", *, tests: bool) -> list[Line | Block]:
    content: list[Line | Block] = [_command(each) for each in report.commands if each.test is tests]
    more = [] if tests else _more(report.omitted.commands, "further command")
    return [*content, *more]


def _command(command: "ReportCommand") -> Line:
    known = [
        f"{command.passed} passed" if command.passed else "",
        f"{command.failed} failed" if command.failed else "",
    ]
    counted = ", ".join(filter(None, known))
    runs = f" ({plural(command.runs, 'run')}{f': {counted}' if counted else ''})"
    parts: list[str | UntrustedText] = [
        f"{command.result or _UNKNOWN}: ",
        UntrustedText(command.command),
        runs,
    ]
    if command.result == "FAIL" and command.error:
        end = clean(command.error)[-_ERROR_CHARS:]
        parts += [", the output ends ", UntrustedText(end)]
    return _line(*parts)


def _decided(report: "Report") -> Section:
    content: list[Line | Block] = [_note(each) for each in report.decided]
    more = _more(report.omitted.decided, "earlier note")
    return Section("Decided", [*content, *more], "No note is recorded.")


def _note(note: "Note") -> Line:
    attribution: tuple[str | UntrustedText, ...] = (
        (" by a person",) if note.origin == "person" else ()
    )
    if note.agent_id:
        attribution = (
            " in the session of " if note.origin == "fact" else " by ",
            UntrustedText(note.agent_id),
        )
    parts: list[str | UntrustedText] = [
        _KINDS.get(note.kind, "Noted"),
        *attribution,
        ": ",
        UntrustedText(note.text),
    ]
    if note.because:
        parts += [", because ", UntrustedText(note.because)]
    if note.path:
        parts += [" [", UntrustedText(note.path), "]"]
    if note.withdrawn_at:
        parts += [" — withdrawn: ", UntrustedText(note.withdrawn_reason or "?")]
    return _line(*parts)


def _left_open(report: "Report") -> Section:
    left = report.left_open
    content: list[Line | Block] = [
        *(_line("Next: ", UntrustedText(each)) for each in left.next_steps),
        *(_line("Blocked: ", UntrustedText(each)) for each in left.blockers),
        *(
            _line("Locked by ", UntrustedText(each.held_by), ": ", UntrustedText(each.file))
            for each in left.locks
        ),
        *(_line("Changed by several agents: ", UntrustedText(each)) for each in left.conflicts),
        *(
            _line("Needs a person: ", UntrustedText(each.agent_id), f", {_words(each.agent.needs)}")
            for each in report.agents
            if each.agent is not None and each.agent.needs
        ),
    ]
    over = not any(each.status in OPEN_MISSION for each in report.missions)
    undone = [each for each in report.planned if each.status not in CLOSED_SORTIE]
    if over and undone:
        content += [_line("Not done: ", UntrustedText(each.title)) for each in undone]
    return Section("Left open", content, "Nothing.")


def _compactions(report: "Report") -> Section:
    content: list[Line | Block] = [
        *(_compaction(each) for each in report.compactions),
        *(_recovery(each) for each in report.recoveries),
    ]
    if report.checkpoints:
        number = len(report.checkpoints) + report.omitted.checkpoints
        newest = report.checkpoints[-1]
        content.append(
            _line(
                f"{plural(number, 'checkpoint')}, the newest ",
                UntrustedText(newest.id),
                f" of {moment(newest.timestamp)} at {newest.progress_percent}%",
            )
        )
    content += _more(report.omitted.compactions, "earlier compaction")
    content += _more(report.omitted.recoveries, "earlier recovery", "earlier recoveries")
    return Section("Compactions and recoveries", content, "None is recorded.")


def _compaction(effect: "CompactionEffect") -> Line:
    briefed = {"given": "with its briefing", "off": "without a briefing"}.get(
        effect.briefing or "", "no briefing is recorded"
    )
    return _line(
        f"{moment(effect.at)} compaction of ",
        UntrustedText(effect.agent_id),
        f", {briefed}; then {plural(effect.calls, 'tool call')}",
    )


def _recovery(recovery: "Recovery") -> Line:
    whom: tuple[str | UntrustedText, ...] = (
        (" for ", UntrustedText(recovery.agent_id)) if recovery.agent_id else ()
    )
    return _line(
        f"{moment(recovery.created_at)} recovery from ",
        UntrustedText(recovery.checkpoint_id),
        *whom,
        f", {recovery.state}",
    )


def _errors(report: "Report") -> Section:
    content: list[Line | Block] = []
    for each in report.errors:
        attribution = (" ", UntrustedText(each.agent_id)) if each.agent_id else ()
        message = (" — ", UntrustedText(clean(each.message)[:_ERROR_CHARS])) if each.message else ()
        content.append(
            _line(moment(each.at), *attribution, ": ", UntrustedText(each.name), *message)
        )
    more = _more(report.omitted.errors, "earlier error")
    return Section("Errors", [*content, *more], "None is recorded.")


def _time(report: "Report", *, with_prompts: bool) -> Section:
    content: list[Line | Block] = [
        _line(
            f"{times.span(report.elapsed_ms)} from the first event to the last,"
            f" {times.span(report.active_ms)} at work"
        )
    ]
    for each in report.agents:
        content.append(_agent(each))
        if with_prompts and each.last_answer:
            content.append(Block(each.last_answer))
    return Section("Agents and time", [*content, *_more(report.omitted.agents, "further agent")])


def _agent(part: "ReportAgent") -> Line:
    parts = (
        tuple(_agent_parts(part.agent))
        if part.agent is not None
        else (UntrustedText(part.agent_id),)
    )
    return _line(
        *parts,
        f"; {times.span(part.active_ms)} at work, {plural(part.calls, 'tool call')},"
        f" {part.failed} failed, {plural(part.changes, 'change')} of files",
    )


def _tokens(usage: list[UsageRow]) -> Section:
    content: list[Line | Block] = [
        _line(
            UntrustedText(each.name),
            f": {each.input:,} input, {each.output:,} output, {each.cache_read:,} read from the"
            f" cache, {each.cache_write:,} written to it, {each.reasoning:,} reasoning",
            f"; {each.cost}" if each.cost else "",
        )
        if each.known
        else _line(UntrustedText(each.name), ": not known")
        for each in usage
    ]
    return Section("Tokens", content, "No transcript has tokens.")


def _more(number: int, noun: str, several: str | None = None) -> list[Line]:
    if not number:
        return []
    counted = plural(number, noun) if several is None or number == 1 else f"{number} {several}"
    return [_line(f"and {counted}")]
