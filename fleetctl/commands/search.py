"""``fleetctl search``: searches events, messages and notes, the newest hits first."""

from collections.abc import Iterator
from shlex import quote
from typing import get_args

from fleetd.protocol.patterns import SearchKind

from ..args import (
    Namespace,
    Subparsers,
    agent_option,
    command,
    mission_option,
    since_option,
    whole_number,
)
from ..client import call
from ..client.models import SearchHit, SearchPage, SearchQuery
from ..context import time_before
from ..output import console
from ..output.text import wrapped

EXAMPLES = """\
  fleetctl search login form
  fleetctl search --kind command --since 2d pytest
  fleetctl search --path src/login.py
  fleetctl search --raw 'login AND (form OR "sign in") NOT test*'"""
DETAILS = (
    "The newest hit comes first. Each word has to be there unchanged; case and accents do not"
    " count, and log* finds words that begin with log. A path or an identifier is also found by"
    " any part of it, from 3 characters on."
)
DEFAULT_LIMIT = 20
# Hits beyond this number are not counted.
COUNTED = 1_000
CONTEXT_EVENTS = 20
INDENT = "    "


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "search",
        run,
        "Search the words of what agents were asked, said, ran and noted.",
        EXAMPLES,
        details=DETAILS,
    )
    parser.add_argument("query", nargs="*", metavar="QUERY", help="words that must all occur")
    mission_option(parser, "all missions")
    agent_option(parser, "only what this agent did or said")
    parser.add_argument("--kind", choices=get_args(SearchKind), help="only hits of this kind")
    parser.add_argument(
        "--path",
        metavar="PART",
        help="only hits with a path or identifier that contains this, 3 characters or more",
    )
    since_option(parser, "only hits")
    parser.add_argument(
        "-n",
        "--limit",
        type=whole_number(1, 1_000),
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"show at most N (default: {DEFAULT_LIMIT})",
    )
    parser.add_argument(
        "--before",
        type=int,
        metavar="SEQ",
        help="only older hits: the number in the last line of the page before",
    )
    parser.flag("--raw", help='the query has AND, OR, NOT, parentheses, "phrases" and begin*')


def run(args: Namespace) -> int:
    """Print the hits."""
    page = call(
        SearchQuery(
            query=" ".join(args.query),
            mission_id=args.mission,
            agent_id=args.agent,
            kind=args.kind,
            path=args.path,
            since_time=time_before(args.since),
            limit=args.limit,
            before=args.before,
            raw=args.raw,
        )
    )
    return console.show(args, page, lambda page: _print(args, page))


def _print(args: Namespace, page: SearchPage) -> None:
    for hit in page.hits:
        origin = (
            hit.agent_id or "you",
            hit.mission_id,
            hit.type if hit.kind == "event" else None,
        )
        header = "  ".join(filter(None, (str(console.ago(hit.timestamp)), hit.kind, *origin)))
        console.line(header)
        for line in _excerpt(hit):
            print(INDENT + line)
        console.whole(INDENT + opening(hit))
    if not page.hits:
        console.line("Nothing found.")
    if page.more:
        more = f"more than {COUNTED:,}" if page.more >= COUNTED else f"{page.more:,}"
        last = page.hits[-1].seq
        console.whole(f"{more} more: {_following(args, last)}")
    if page.indexing is not None:
        console.warn(
            f"The search index is being built: {page.indexing}% of the log is searchable,"
            " the newest part of it. Older hits may be missing."
        )


def opening(hit: SearchHit) -> str:
    """Return the command that shows a hit in its context."""
    if hit.id is not None:
        return (
            f"fleetctl mail show {hit.id}" if hit.kind == "mail" else f"fleetctl note show {hit.id}"
        )
    place = f" --mission {hit.mission_id}" if hit.mission_id else ""
    return f"fleetctl events --since {hit.seq - 1} --limit {CONTEXT_EVENTS}{place}"


def _following(args: Namespace, last: int) -> str:
    """Return the command line that shows the hits older than the last one."""
    words = ["fleetctl", "search"]
    for name in ("mission", "agent", "kind", "path"):
        if (value := getattr(args, name)) is not None:
            words += [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]
    if args.since is not None:
        words += ["--since", f"{-(-args.since // 1_000)}s"]
    if args.limit != DEFAULT_LIMIT:
        words += ["--limit", str(args.limit)]
    words += ["--raw"] * args.raw
    words += ["--before", str(last)]
    # A searched word may look like an option.
    words += ["--"] * any(word.startswith("-") for word in args.query)
    return " ".join(map(quote, [*words, *args.query]))


def _excerpt(hit: SearchHit) -> Iterator[str]:
    """Yield the lines of an excerpt, with what matches in bold on a terminal."""
    text, marked = _cleaned(hit)
    room = console.columns()
    lines = [text] if room is None else wrapped(text, max(room - len(INDENT), console.MIN_FLOW))
    at = 0
    for line in lines:
        at = text.index(line, at)
        yield _styled(line, marked[at : at + len(line)])
        at += len(line)


def _cleaned(hit: SearchHit) -> tuple[str, list[bool]]:
    """Return an excerpt fit for a terminal, and for each character whether it matches."""
    text, marked, at = "", list[bool](), 0
    marks = [(mark.start, mark.end) for mark in hit.marks]
    for start, end in [*marks, (len(hit.excerpt), len(hit.excerpt))]:
        for part, matches in ((hit.excerpt[at:start], False), (hit.excerpt[start:end], True)):
            shown = console.clean(part)
            text += shown
            marked += [matches] * len(shown)
        at = end
    return text, marked


def _styled(line: str, marked: list[bool]) -> str:
    """Return a line with its marked runs in a style."""
    parts, start = [], 0
    for at in range(1, len(line) + 1):
        if at == len(line) or marked[at] != marked[start]:
            parts.append(console.styled(line[start:at], "bold" if marked[start] else ""))
            start = at
    return "".join(parts)
