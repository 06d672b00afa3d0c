"""Console: text and JSON for stdout, styles, and lines that fit a terminal.

Only a terminal gets times in words and lines that fit. Piped output is exact and complete;
``--exact`` asks for that on a terminal too.

Stored text comes from agents and from the tools they run. Before it reaches a terminal, characters
are removed that could move a cursor, retitle a window or reverse the reading order, and those that
nobody sees.
"""

from __future__ import annotations

import os
import sys
import time

from fleetd.protocol.display import dropped, duration, escaped, escaped_in_json

from . import times
from .text import cut, width, wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TextIO, TypeVar

    from ..args import Namespace
    from ..client.models import Findings, RecoveryCandidate

    T = TypeVar("T")
    Text = TypeVar("Text", str, str | None)

NARROWEST = 20
USUAL = 80
_exact = False


def set_exact(wanted: bool) -> None:
    """Switch exact output, as for a pipe, on or off."""
    global _exact
    _exact = wanted


def human_readable() -> bool:
    """Return whether stdout is a terminal, and nobody asked for exact output."""
    return not _exact and sys.stdout.isatty()


def columns() -> int | None:
    """Return how wide a line may be; None when nothing is to be cut."""
    return terminal_width() if human_readable() else None


def width_of(stream: TextIO) -> int:
    """Return the columns of a stream's terminal; 0 if it has none, or one without a size."""
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def terminal_width() -> int:
    """Return how wide the terminal is, in columns; else as ``COLUMNS`` says, else 80."""
    if found := width_of(sys.stdout) or width_of(sys.stderr):
        return max(found, NARROWEST)
    given = os.environ.get("COLUMNS", "")
    return (
        max(int(given), NARROWEST)
        if given.isdecimal() and given.isascii() and given != "0"
        else USUAL
    )


def has_unicode() -> bool:
    """Return whether stdout has more characters than ASCII: bars and ellipses."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def now_ms() -> int:
    """Return the time, in ms since the epoch."""
    return time.time_ns() // 1_000_000


_BIDI_AND_BREAKS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *_BIDI_AND_BREAKS))
_ONE_LINE = {**_CONTROLS, 0x09: " ", 0x0A: " "}
_BLOCK = {code: None for code in _CONTROLS if code not in (0x09, 0x0A)}
# JSON keeps every character, but those that a terminal would obey are written as escapes.
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_BIDI_AND_BREAKS)}

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_VERDICTS = {"ok": "green", "note": "cyan", "fixed": "yellow", "WRONG": "red"}
MIN_FLOW = 20
# The extra indentation of a wrapped line.
HANGING = 4
# A mission with an activity within this time is at work.
ACTIVE_MS = 60_000
# How many columns a bar of progress takes.
BAR = 8
# A subject that is longer gets no column of its own.
SHORT_SUBJECT = 12
NAMED_PROBLEMS = 5
# The styles of the states of missions, sorties, agents, locks and recoveries.
STATES = {
    **dict.fromkeys(("completed", "resumed", "active", "acked", "here"), "green"),
    **dict.fromkeys(("in_progress", "running", "briefed"), "cyan"),
    **dict.fromkeys(("blocked", "waiting", "unconfirmed", "expired", "forced"), "yellow"),
    **dict.fromkeys(("queued", "left", "waiting: permission"), "yellow"),
    **dict.fromkeys(("failed", "lost", "interrupted"), "red"),
    **dict.fromkeys(("cancelled", "closed", "merged", "gone", "released"), "dim"),
}


def clean(text: str) -> str:
    """Return text fit for one line of a terminal."""
    return dropped(text.translate(_ONE_LINE))


def clean_block(text: str) -> str:
    """Return text fit for a terminal; line breaks and tabs stay."""
    return dropped(text.translate(_BLOCK))


def whole(text: str) -> None:
    """Print one line for a person to copy, such as a command: only the terminal wraps it."""
    print(clean(text))


def path(name: str) -> str:
    """Return a file's name fit for a terminal, with escapes for invisible characters.

    Without those characters it would be another file's name.
    """
    return escaped(name)


def paths(names: Iterable[str]) -> str:
    """Return the names of files, with commas between them."""
    return ", ".join(map(path, names))


def line(text: str = "") -> None:
    """Print one line; line breaks inside it become spaces.

    On a terminal, a line that is too long is wrapped between words and indented further.
    """
    text = clean(text)
    room = columns()
    if room is None or width(text) <= room:
        print(text)
        return
    start = len(text) - len(text.lstrip())
    first, *more = wrapped(text, room - start, 2, whole_words=True)
    rest = text[start + len(first) :]
    print(text[:start] + first)
    if more:
        flow(" " * (start + HANGING), rest.strip())


def lines(texts: Iterable[str]) -> None:
    """Print lines."""
    for text in texts:
        line(text)


def heading(text: str) -> None:
    """Print the title of a section, after a blank line."""
    print("\n" + styled(clean(text), "bold"))


def bullets(title: str, items: Sequence[str]) -> None:
    """Print a titled list; nothing when it is empty."""
    if items:
        print()
        line(f"{title}:")
        for item in items:
            flow("  - ", item)


def to_json(value: Any, *, indent: int = 2) -> str:
    """Return a record, a list or plain data as JSON; ``indent`` 0 gives one line."""
    # Imported here: it takes as long as all the rest.
    import json

    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent or None, separators=separators)
    return escaped_in_json(text.translate(_ESCAPED))


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(to_json(value))


def result(args: Namespace, value: Any, *texts: str) -> int:
    """Print a result as JSON or as lines, whichever was asked for, and return status 0."""
    if args.json:
        print_json(value)
    else:
        lines(texts)
    return 0


def show(args: Namespace, value: T, page: Callable[[T], object]) -> int:
    """Print a result as JSON or as a page, whichever was asked for, and return status 0."""
    if args.json:
        print_json(value)
    else:
        page(value)
    return 0


def findings(args: Namespace, found: Findings) -> int:
    """Print the findings of a check; the status is 1 when a problem remains.

    A line has a verdict, the check, its subject, the detail, and a reason code if there is one.
    """
    show(args, found, _print_findings)
    return 0 if found.ok else 1


def _print_findings(found: Findings) -> None:
    checks = max((width(each.check) for each in found.findings), default=0)
    subjects = max((width(each.subject or "") for each in found.findings), default=0)
    for finding in found.findings:
        fine = "note" if finding.note else "ok"
        verdict = "fixed" if finding.fixed else fine if finding.ok else "WRONG"
        code = f"[{finding.reason_code}]" if finding.reason_code else None
        # Columns, except for subjects that are as long as a file's name.
        subject = finding.subject or ""
        if subjects <= SHORT_SUBJECT:
            subject = f"{subject:<{subjects}}"
        parts = filter(None, (f"{finding.check:<{checks}}", subject, finding.detail, code))
        flow(f"{verdict:<6} ", "  ".join(parts), style=_VERDICTS[verdict])
    line(_verdict(found))


def _verdict(found: Findings) -> str:
    """Return how a check ended: in order, or how many problems there are and which."""
    if found.ok:
        return "Everything is in order."
    wrong = [
        f"{each.check} ({each.subject})" if each.subject else each.check
        for each in found.findings
        if not each.ok
    ]
    named = list(dict.fromkeys(wrong))
    more = ", …" if len(named) > NAMED_PROBLEMS else ""
    return f"{plural(len(wrong), 'problem')}: {', '.join(named[:NAMED_PROBLEMS])}{more}."


def lost_agents(candidate: RecoveryCandidate) -> str:
    """Return the agents that left work open, with the reason as in ``fleetctl status --json``."""
    return f"agent_lost: {', '.join(candidate.lost_agents)}"


def resume_command(candidate: RecoveryCandidate, agent: str) -> str:
    """Return the command that recovers a mission, or the part of it that waits, for an agent."""
    text = f"fleetctl resume --mission {candidate.mission_id} --agent {agent}"
    return f"{text} --scope agent" if candidate.agent_id else text


def resume_commands(candidate: RecoveryCandidate) -> list[str]:
    """Return the commands that recover a mission: one, or one for each lost agent.

    Where other agents work again, they must not notice. A lost agent needs a successor, which
    the person names in place of ``NEW``: nobody else would get a briefing.
    """
    if candidate.agent_id:
        return [resume_command(candidate, candidate.agent_id)]
    text = f"fleetctl resume --mission {candidate.mission_id}"
    taken_over = [f"{text} --agent NEW --take-over-from {lost}" for lost in candidate.lost_agents]
    return taken_over or [text]


def rest_of_line(start: str, text: str) -> str:
    """Return text; on a terminal, as much of it as fits after its start."""
    room = columns()
    text = clean(text)
    return text if room is None else cut(text, max(room - width(start), MIN_FLOW))


def headed(start: str, text: str) -> None:
    """Print text after its start; on a terminal without room for both, cut on the next line."""
    room = columns()
    if room is not None and room - width(start) < MIN_FLOW:
        line(start.rstrip())
        start = "    "
    line(start + rest_of_line(start, text))


def flow(start: str, text: str, *, style: str = "") -> None:
    """Print text after its start; on a terminal, wrapped between words and aligned.

    ``style`` is that of the start.
    """
    room = columns()
    start, text = clean(start), clean(text)
    indent = width(start)
    fits = room and max(room - indent, MIN_FLOW)
    parts = [text] if fits is None else wrapped(text, fits, whole_words=True)
    for n, part in enumerate(parts):
        print((" " * indent if n else styled(start, style)) + part)


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print ``Name: value`` lines; absent values are left out."""
    for name, value in pairs:
        if value is not None and value != "":
            flow(f"{name}: ", str(value))


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return text in a style, if any, when the stream is a terminal that wants colour."""
    if not style:
        return text
    stream = stream or sys.stdout
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if plain else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def print_stderr(*texts: str) -> None:
    """Print lines on stderr, without control characters."""
    for text in texts:
        print(clean(text), file=sys.stderr)


def warn(*texts: str) -> None:
    """Print warnings on stderr."""
    for text in texts:
        print_error("Warning:", text, "yellow")


def print_error(label: str, text: str, style: str = "") -> None:
    """Print text on stderr after its label; on a terminal, wrapped between words."""
    text = clean(text)
    if sys.stderr.isatty():
        text = f"\n{' ' * (len(label) + 1)}".join(wrapped(text, terminal_width() - len(label) - 1))
    print(styled(label, style, sys.stderr), text, file=sys.stderr)


def plural(count: int, noun: str) -> str:
    """Return ``1 lock``, ``2 locks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def titled(title: str, *, automatic: bool) -> str:
    """Return a mission's title, marked when the mission was created for a session."""
    return f"{title} (auto)" if automatic else title


def agent_state(status: str, needs: str | None) -> str:
    """Return the status of an agent, with what it waits for unless that is the same word."""
    return f"{status}: {needs}" if needs and needs != status else status


def last_activity(ms: int, *, silent: bool) -> str:
    """Return when something was last done on a mission; ``active`` within the last minute.

    A quiet mission is ``silent`` only by the rules of the daemon.
    """
    if ms < ACTIVE_MS:
        return "active"
    return f"silent {span(ms)}" if silent else f"last activity {span(ms)} ago"


def span(ms: int) -> str:
    """Return a length of time: ``2 h 5 min`` on a terminal, else ``2h 5m``."""
    return times.span(ms) if human_readable() else duration(ms)


def ago(text: Text) -> Text:
    """Return a time unchanged, on a terminal in words: ``3 min ago``; None stays None."""
    return times.ago(text, now_ms()) if text and human_readable() else text


def moment(at: str) -> str:
    """Return a time inside a sentence: ``3 min ago`` on a terminal, else ``at 2026-…``."""
    return ago(at) if human_readable() else f"at {at}"


def lease(until: str | None) -> str:
    """Return how long a lock holds: ``for 8 min`` on a terminal, else ``until 2026-…``."""
    return times.lease(until or "", now_ms()) if human_readable() else f"until {until}"


def percent_bar(percent: int) -> str:
    """Return ``50%``, on a terminal with a small bar before it."""
    if not human_readable():
        return f"{percent}%"
    full = min(max(percent, 0), 100) * BAR // 100
    done, left = ("█", "░") if has_unicode() else ("#", "-")
    return f"{done * full}{left * (BAR - full)} {percent:>3}%"


def size(count: int) -> str:
    """Return a number of bytes in readable units: ``812 B``, ``1.4 MB``."""
    if count < 1_000:
        return f"{count} B"
    amount = count / 1_000
    for unit in ("kB", "MB"):
        if amount < 1_000:
            return f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"
