"""``fleetctl events``: the event log, up to now or as it grows."""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..client import Fleet
from ..display import lists, moments, render, screen
from ..display.sentences import sentence, tone
from ..options import Subparsers, command, mission_option, whole
from ..overview import position_of
from ..protocol import Event, EventList

if TYPE_CHECKING:
    from ..client import Link

EXAMPLES = """\
  fleetctl events --limit 20
  fleetctl events --follow --type lock_acquired --type lock_released
  fleetctl events --since 100 --json"""
PAGE = 1_000
DEFAULT_LIMIT = 50


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "events",
        run,
        "Print the event log, oldest first: sentences on a terminal, else whole.",
        EXAMPLES,
    )
    mission_option(parser, "all missions")
    parser.add_argument(
        "--type", action="append", metavar="TYPE", help="only this type; may be repeated"
    )
    parser.add_argument(
        "--since", type=whole(0), metavar="N", help="those after event N (default: the newest)"
    )
    parser.add_argument(
        "--limit",
        type=whole(1, PAGE),
        metavar="N",
        help=f"how many (default: {DEFAULT_LIMIT}; with --follow: no end)",
    )
    parser.add_argument("--follow", action="store_true", help="go on with events as they happen")


def run(args: Namespace) -> int:
    """Print events, or follow them until the person has seen enough."""
    if args.follow:
        try:
            return _follow(args)
        except KeyboardInterrupt:
            # Ctrl-C is how one stops following; nothing failed.
            return 0
    with Fleet() as client:
        events = _listed(client, args)
    if args.json:
        render.print_json(events)
    elif events:
        for event in events:
            _print(event)
    else:
        lists.nothing("No events found.")
    return 0


def _listed(client: Fleet, args: Namespace) -> list[Event]:
    """Return the first events after ``--since``, or without it the newest."""
    limit = args.limit or DEFAULT_LIMIT
    if args.since is None:
        return list(deque(_pages(client, args, _newest(client, args, limit)), maxlen=limit))
    found = _pages(client, args, args.since)
    return [event for event, _ in zip(found, range(limit), strict=False)]


def _newest(client: Fleet, args: Namespace, limit: int) -> int:
    """Return where to begin so that the newest events are among those that follow."""
    if args.type or args.mission:
        return 0
    return max(0, position_of(client) - limit)


def _pages(client: Fleet, args: Namespace, since: int) -> Iterator[Event]:
    only = args.type[0] if args.type and len(args.type) == 1 else None
    while True:
        page = client.call(EventList(mission_id=args.mission, type=only, since=since, limit=PAGE))
        for event in page.events:
            if not args.type or event.type in args.type:
                yield event
        if not page.events:  # large ones make a page short, though more follow
            return
        since = page.position


def _follow(args: Namespace) -> int:
    """Print events as they come; goes on where it was when the daemon was restarted."""
    from msgspec import to_builtins

    left = args.limit
    for event in _stream(args):
        if args.json:
            print(render.to_json(to_builtins(event), indent=0))
        else:
            _print(event)
        sys.stdout.flush()
        if left is not None and (left := left - 1) == 0:
            break
    return 0


def _stream(args: Namespace) -> Iterator[Event]:
    """Yield events without gaps; in a store that was replaced, from its end on."""
    from ..client import StoreReplaced

    since = args.since
    with Fleet() as fleet:
        while True:
            try:
                yield from fleet.events(
                    since=since, types=args.type, mission_id=args.mission, on_link=_tell
                )
            except StoreReplaced as error:
                render.warn(f"{error.message} Following from the end of the new log.")
                since = None


def _tell(link: "Link") -> None:
    if link.state == "away":
        render.warn("fleetd went away; waiting for it to come back.")


def _print(event: Event) -> None:
    """Print an event as a sentence to who looks on, else with all that it says."""
    if not screen.humane():
        render.line(_line(event))
        return
    start = f"{event.seq:>6}  {moments.moment(event.timestamp, screen.now_ms()):<8}  "
    told = render.rest_of_line(start, sentence(event))
    print(render.styled(start, "dim") + render.styled(told, tone(event.type) or ""))


def _line(event: Event) -> str:
    data = " ".join(f"{name}={_value(value)}" for name, value in event.data.items())
    who = event.agent_id or "-"
    where = event.mission_id or "-"
    return f"{event.seq:>6}  {event.timestamp}  {event.type:<20}  {who}  {where}  {data}".rstrip()


def _value(value: object) -> str:
    return value if isinstance(value, str) else render.to_json(value, indent=0)
