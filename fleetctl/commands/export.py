"""``fleetctl export``: missions as traces, to a file or to an OpenTelemetry collector."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from fleetd.protocol.errors import InvalidParams, NotFound, Unavailable

from ..args import Namespace, Subparsers, UsageError, command, since_option
from ..client import Fleet
from ..client.models import (
    Agent,
    AgentGet,
    Event,
    EventList,
    Mission,
    MissionGet,
    MissionList,
    SortieList,
)
from ..client.pagination import PAGE, all_pages
from ..context import reported_mission, time_before
from ..output import console

if TYPE_CHECKING:
    from ..export.spans import Span

EXAMPLES = """\
  fleetctl export --out trace.jsonl
  fleetctl export msn-1a2b3c4d --format otlp --endpoint http://localhost:4318
  fleetctl export --all --since 7d --endpoint http://localhost:4318"""
MOST_SPANS, MOST_BYTES = 512, 1_000_000


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "export",
        run,
        "Export missions as traces: a mission is a trace, with spans for its agents, and below them"
        " their sorties, tool calls and compactions.",
        EXAMPLES,
        details="Prompts, answers, and titles that were prompts are left out without"
        " --with-prompts. Commands are always exported. Two exports of the"
        " same records are equal.",
    )
    parser.add_argument(
        "mission",
        metavar="MISSION",
        nargs="*",
        completes="mission",
        help="the ids of missions (default: the mission of this directory, else the one that ended"
        " here last)",
    )
    parser.flag("--all", help="export all missions")
    since_option(parser, "all missions with activity")
    parser.add_argument(
        "--format",
        choices=("json", "otlp"),
        default="json",
        help="OTLP as JSON, a request per line, or as protobuf, which needs fleetd[otlp]"
        " (default: json)",
    )
    parser.add_argument("--out", metavar="FILE", help="write to FILE, which only you can read")
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="send to the collector at URL, to its path /v1/traces",
    )
    parser.flag("--with-prompts", help="export prompts and answers too")


def run(args: Namespace) -> int:
    """Export spans, batch by batch, and print their number."""
    from ..export.collector import Collector
    from ..export.encoding import Encoding, Json, Protobuf, batches

    _check(args)
    encoding: Encoding = Protobuf() if args.format == "otlp" else Json()
    collector = Collector(args.endpoint, encoding) if args.endpoint is not None else None
    counts = {"missions": 0, "spans": 0, "requests": 0}
    with ExitStack() as stack:
        client = stack.enter_context(Fleet())
        missions = _missions(client, args)
        write = None
        if args.out is not None:
            from ..output.files import written_whole

            write = stack.enter_context(written_whole(args.out)).write
        spans = _spans(client, missions, counts, with_prompts=args.with_prompts)
        for batch in batches(spans, MOST_SPANS, MOST_BYTES):
            body = encoding.encode(batch)
            if collector is not None:
                _send(collector.send, body, counts)
            elif write is not None:
                write(body)
            else:
                _print(body, is_text=args.format == "json")
            counts["spans"] += len(batch)
            counts["requests"] += 1
    if collector is None and write is None:
        return 0
    where = collector.shown if collector is not None else console.path(args.out)
    traced = console.plural(counts["missions"], "mission")
    return console.result(
        args,
        {**counts, "format": args.format, "to": where},
        f"Exported {console.plural(counts['spans'], 'span')} of {traced} to {where}.",
    )


def _print(body: bytes, *, is_text: bool) -> None:
    if is_text:
        sys.stdout.write(body.decode())
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(body)


def _check(args: Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if args.out is not None and args.endpoint is not None:
        raise UsageError("Give either --out or --endpoint.")
    if args.out == "":
        raise UsageError("--out is empty; give the name of a file.")
    if args.mission and (args.all or args.since is not None):
        raise UsageError("Give either ids of missions, or --all and --since.")
    if args.out is None and args.endpoint is None:
        if args.json:
            raise UsageError("--json needs --out or --endpoint; else the spans are printed.")
        if args.format == "otlp" and sys.stdout.isatty():
            raise UsageError("Protobuf is not for a terminal: give --out FILE or --endpoint URL.")


def _send(send: Callable[[bytes], None], body: bytes, counts: dict[str, int]) -> None:
    """Send a request; an error states what the collector has received before."""
    try:
        send(body)
    except Unavailable as error:
        if not counts["spans"]:
            raise
        before = f" It took {console.plural(counts['spans'], 'span')} before."
        raise Unavailable(error.message + before, hint=error.hint) from None


def _missions(client: Fleet, args: Namespace) -> list[Mission]:
    """Return the missions to export, the oldest first; raises NotFound."""
    if args.all or args.since is not None:
        since = time_before(args.since) or ""
        found = all_pages(lambda **more: client.call(MissionList(limit=PAGE, **more)).missions)
        chosen = [each for each in found if (each.last_activity_at or each.created_at) >= since]
    else:
        given = args.mission or [reported_mission(client)]
        named = [client.call(MissionGet(mission_id=each)) for each in given]
        chosen = list({each.id: each for each in named}.values())
    return sorted(chosen, key=lambda each: (each.created_at, each.id))


def _spans(
    client: Fleet, missions: list[Mission], counts: dict[str, int], *, with_prompts: bool
) -> "Iterator[Span]":
    from ..export.spans import MissionTrace

    for mission in missions:
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        agent_of = partial(_agent, client)
        trace = MissionTrace(mission, sorties, agent_of, with_prompts=with_prompts)
        for event in _events(client, mission.id):
            yield from trace.add_event(event)
        yield from trace.finish()
        counts["missions"] += 1


def _agent(client: Fleet, agent_id: str) -> Agent | None:
    try:
        return client.call(AgentGet(agent_id=agent_id))
    except (NotFound, InvalidParams):
        return None


def _events(client: Fleet, of_mission: str) -> Iterator[Event]:
    position = 0
    while True:
        page = client.call(EventList(mission_id=of_mission, since=position, limit=PAGE))
        yield from page.events
        if page.position == position or not page.events:
            return
        position = page.position
