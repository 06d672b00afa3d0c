"""``fleetctl mission timeline``: which events are told; must not know how they are."""

import re
from argparse import ArgumentTypeError, Namespace
from collections import deque
from collections.abc import Iterator
from typing import Any

from .client import Fleet
from .display import render, screen
from .options import Parser, whole
from .protocol import Event, EventList, MissionGet, SortieList
from .target import mission_id

SUMMARY = "Tell what happened on a mission, newest last."
EXAMPLES = """\
  fleetctl mission timeline
  fleetctl mission timeline msn-1a2b3c4d --since 2h
  fleetctl mission timeline --all --full"""
PAGE = 1_000
ENTRIES = 40
# More than enough for the entries that are shown, and not all of a mission of weeks.
EVENTS = 5_000
_AGE = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def options(parser: Parser) -> None:
    """Add what says how much is told."""
    parser.add_argument(
        "mission_id",
        metavar="ID",
        completes="mission",
        nargs="?",
        help="default: the mission of this directory",
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "--limit",
        type=whole(1, 100_000),
        metavar="N",
        help=f"how many lines at most, the newest ones (default: {ENTRIES})",
    )
    how_much.add_argument("--all", action="store_true", help="from the beginning")
    parser.add_argument(
        "--since", type=age, metavar="AGE", help="what happened in the last 30m, 2h or 3d"
    )
    parser.add_argument(
        "--full", action="store_true", help="every event by itself, and nothing is cut"
    )


def age(text: str) -> int:
    """Return an age such as ``90s``, ``30m``, ``2h`` or ``3d`` in ms; raises ArgumentTypeError."""
    if (found := _AGE.fullmatch(text)) is None:
        raise ArgumentTypeError(f"expected an age such as 30m, 2h or 3d; got {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def run(args: Namespace) -> int:
    """Print the story of a mission."""
    # Imported here: no other command of the group needs it.
    from .display.timeline_page import show_story
    from .timeline import story

    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=mission_id(client, args.mission_id)))
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        known = deque(_events(client, mission.id), maxlen=None if args.all else EVENTS)
    now = screen.now_ms()
    entries = story(
        known,
        now,
        inside=mission.project_dir,
        full=args.full,
        goes_on=mission.status == "in_progress",
    )
    if args.since is not None:
        entries = [entry for entry in entries if entry.ended >= now - args.since]
    limit = len(entries) if args.all or args.since is not None else ENTRIES
    left_out = max(len(entries) - (args.limit or limit), 0)
    entries = entries[left_out:]
    if args.json:
        render.print_json([_plain(entry) for entry in entries])
        return 0
    show_story(mission, sorties, entries, whole=args.full)
    _close(args, len(entries), left_out)
    return 0


def _close(args: Namespace, shown: int, left_out: int) -> None:
    if not shown:
        render.line("Nothing happened in that time." if args.since else "Nothing happened yet.")
    elif left_out and screen.humane():
        print()
        render.line(f"{render.plural(left_out, 'line')} before these; --all shows them.")


def _events(client: Fleet, mission: str) -> Iterator[Event]:
    since = 0
    while True:
        page = client.call(EventList(mission_id=mission, since=since, limit=PAGE))
        yield from page.events
        if not page.events:
            return
        since = page.position


def _plain(entry: Any) -> dict[str, Any]:
    from fleetd.wire.times import iso

    return {
        "kind": entry.kind,
        "begun_at": iso(entry.begun),
        "ended_at": iso(entry.ended),
        "agent_id": entry.agent,
        "text": entry.text,
        "events": [event.seq for event in entry.events],
    }
