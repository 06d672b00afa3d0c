"""``fleetctl mission timeline``: which events are told."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..args import CommandParser, age, whole
from ..client import Fleet
from ..client.models import Event, MissionGet, SortieList
from ..client.pagination import newest
from ..context import mission_id
from ..output import console

if TYPE_CHECKING:
    from ..output.views.timeline import Entry

SUMMARY = "Tell what happened on a mission, newest last."
EXAMPLES = """\
  fleetctl mission timeline
  fleetctl mission timeline msn-1a2b3c4d --since 2h
  fleetctl mission timeline --all --full"""
ENTRIES = 40
# Nearly always enough for the entries that are shown, and not all of a mission of weeks.
EVENTS = 5_000


def options(parser: CommandParser) -> None:
    """Add what says how much is told."""
    parser.add_argument(
        "mission_id", completes="mission", nargs="?", help="default: the mission of this directory"
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
    parser.flag("--full", help="every event by itself, and nothing is cut")


def run(args: Namespace) -> int:
    """Print the story of a mission."""
    # Imported here: no other command of the group needs it.
    from ..output.views.timeline import show_story, story

    with Fleet() as client:
        mission = client.call(MissionGet(mission_id=mission_id(client, args.mission_id)))
        sorties = client.call(SortieList(mission_id=mission.id)).sorties
        now = console.now_ms()
        tell = partial(
            story,
            now_ms=now,
            inside=mission.project_dir,
            full=args.full,
            goes_on=mission.status == "in_progress",
        )
        entries, complete = _told(newest(client, mission_id=mission.id), tell, _enough(args, now))
    if args.since is not None:
        entries = [entry for entry in entries if entry.ended >= now - args.since]
    limit = len(entries) if args.all or args.since is not None else ENTRIES
    left_out = max(len(entries) - (args.limit or limit), 0)
    entries = entries[left_out:]
    if args.json:
        console.print_json([_plain(entry) for entry in entries])
        return 0
    show_story(mission, sorties, entries, whole=args.full)
    _close(args, len(entries), left_out, complete=complete)
    return 0


def _enough(args: Namespace, now: int) -> Callable[[list["Entry"]], bool]:
    """Return what says that a story goes back far enough for all that is to be shown of it.

    Its oldest line may be half of one, so that there has to be one more.
    """
    if args.all:
        return lambda _: False
    if args.since is not None and args.limit is None:
        return lambda entries: entries[0].ended < now - args.since
    most = args.limit or ENTRIES
    return lambda entries: len(entries) > most


def _told(
    events: Iterator[Event],
    tell: Callable[[list[Event]], "list[Entry]"],
    enough: Callable[[list["Entry"]], bool],
) -> "tuple[list[Entry], bool]":
    """Tell of the newest events, and of twice as many until it is enough.

    Returns also whether those are all there are.
    """
    known: list[Event] = []
    while True:
        most = 2 * len(known) or EVENTS
        known += islice(events, most - len(known))
        entries = tell(known[::-1])
        if len(known) < most:
            return entries, True
        if entries and enough(entries):
            return entries, False


def _close(args: Namespace, shown: int, left_out: int, *, complete: bool) -> None:
    if not shown:
        console.line("Nothing happened in that time." if args.since else "Nothing happened yet.")
    elif left_out and console.humane():
        print()
        known = console.plural(left_out, "line") if complete else f"More than {left_out} lines"
        console.line(f"{known} before these; --all shows them.")


def _plain(entry: Any) -> dict[str, Any]:
    from fleetd.protocol.timestamps import iso

    return {
        "kind": entry.kind,
        "begun_at": iso(entry.begun),
        "ended_at": iso(entry.ended),
        "agent_id": entry.agent,
        "text": entry.text,
        "events": [event.seq for event in entry.events],
    }
