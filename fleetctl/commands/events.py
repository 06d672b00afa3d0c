"""``fleetctl events``: the event log, up to now or as it grows."""

import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..args import Namespace, Subparsers, age, command, mission_option, whole_number
from ..client import Fleet
from ..client.models import Event, EventList
from ..client.pagination import newest_events
from ..context import print_link_state
from ..output import console, tables, times
from ..output.events import sentence, tone

EXAMPLES = """\
  fleetctl events --limit 20
  fleetctl events --follow --type lock_acquired --type lock_released
  fleetctl events --agent claude-1a2b3c4d --since 1h
  fleetctl events --since 100 --json"""
PAGE = 1_000
DEFAULT_LIMIT = 50


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "events",
        run,
        "Print the event log, oldest first: as sentences on a terminal, else with all fields.",
        EXAMPLES,
        follows=True,
    )
    mission_option(parser, "all missions")
    parser.add_argument(
        "--type", action="append", metavar="TYPE", help="only events of this type; may be repeated"
    )
    parser.add_argument("--agent", completes="agent", help="only events of this agent")
    parser.add_argument(
        "--since",
        type=_since,
        metavar="N|AGE",
        help="only events after number N, or in the last 90s, 30m, 2h or 3d",
    )
    parser.add_argument(
        "--limit",
        type=whole_number(1, PAGE),
        metavar="N",
        help=f"show at most N (default: {DEFAULT_LIMIT}; with --follow: all)",
    )
    parser.flag(
        "--follow", help="print new events as they happen; with --json, one document per line"
    )


def run(args: Namespace) -> int:
    """Print events, or follow them until the person stops."""
    if args.follow:
        try:
            return _follow(args)
        except KeyboardInterrupt:
            # Ctrl-C ends following normally; nothing failed.
            return 0
    with Fleet() as client:
        events = _listed(client, args)

    def page() -> None:
        for event in events:
            _print(event)

    return tables.show_list(args, events, page, "No events found.")


def _since(text: str) -> int | str:
    """Return the number of an event, or the time for an age."""
    if text.isdecimal():
        return whole_number(0, 2**62)(text)
    # Imported here: other arguments need no times of the wire.
    from fleetd.protocol.timestamps import iso

    try:
        return iso(console.now_ms() - age(text))
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"expected the number of an event, or an age such as 30m, 2h or 3d; got {text!r}"
        ) from None


def _listed(client: Fleet, args: Namespace) -> list[Event]:
    """Return the newest events, or the first ones after the number in ``--since``; oldest first.

    It warns when the limit leaves out events that were asked for.
    """
    limit = args.limit or DEFAULT_LIMIT
    one_more = limit + 1
    if isinstance(args.since, int):
        events = list(islice(_after(client, args, min(one_more, PAGE)), one_more))
        if len(events) == one_more:
            onward = events[limit - 1].seq
            console.warn(f"There are more events; continue with --since {onward}.")
        return events[:limit]
    # Without an age, nobody asks how far back the log goes.
    wanted = one_more if args.since else limit
    found = newest_events(client, **_which(args), since_time=args.since, limit=min(wanted, PAGE))
    events = list(islice(found, wanted))
    if len(events) > limit:
        console.warn(
            f"There are more events of that age. These are the newest {limit}:"
            f" --limit prints up to {PAGE}, --follow prints all and new ones."
        )
    return events[:limit][::-1]


def _which(args: Namespace) -> dict[str, Any]:
    return {"mission_id": args.mission, "types": args.type, "agent_id": args.agent}


def _after(client: Fleet, args: Namespace, limit: int) -> Iterator[Event]:
    position = args.since
    while True:
        page = client.call(EventList(**_which(args), since=position, limit=limit))
        yield from page.events
        if page.position == position or not (page.events or args.agent):
            return
        position = page.position


def _follow(args: Namespace) -> int:
    """Print events as they come; continues at its position after a restart of the daemon."""
    from msgspec import to_builtins

    left = args.limit
    for event in _stream(args):
        if args.json:
            print(console.to_json(to_builtins(event), indent=0))
        else:
            _print(event)
        sys.stdout.flush()
        if left is not None and (left := left - 1) == 0:
            break
    return 0


def _stream(args: Namespace) -> Iterator[Event]:
    """Yield events without gaps; after a replacement of the store, from the end of its log."""
    from ..client import StoreReplaced

    with Fleet() as fleet:
        since = _position(fleet, args.since)
        while True:
            try:
                yield from fleet.events(since=since, **_which(args), on_link=print_link_state)
            except StoreReplaced as error:
                console.warn(f"{error.message} Following from the end of the new log.")
                since = None


def _position(fleet: Fleet, since: int | str | None) -> int | None:
    """Return the number of the event before a time; other numbers stay unchanged."""
    if not isinstance(since, str):
        return since
    page = fleet.call(EventList(since_time=since, limit=1))
    return page.events[0].seq - 1 if page.events else page.position


def _print(event: Event) -> None:
    """Print an event as a sentence for people, else with all its data."""
    if console.human_readable():
        start = f"{event.seq:>6}  {times.moment(event.timestamp, console.now_ms()):<8}  "
        text = console.rest_of_line(start, sentence(event))
        print(console.styled(start, "dim") + console.styled(text, tone(event.type) or ""))
        return
    data = " ".join(
        f"{name}={value if isinstance(value, str) else console.to_json(value, indent=0)}"
        for name, value in event.data.items()
    )
    agent, mission = event.agent_id or "-", event.mission_id or "-"
    console.line(
        f"{event.seq:>6}  {event.timestamp}  {event.type:<20}  {agent}  {mission}  {data}".rstrip()
    )
