"""``fleetctl note``: decisions, constraints, findings and what is ruled out, kept for a mission."""

from functools import partial
from typing import get_args

from fleetd.protocol.patterns import NoteKind

from ..args import Namespace, Subparsers, agent_option, command, group, mission_option
from ..client import Fleet, call
from ..client.models import Note, NoteAdd, NoteGet, NoteList, NotePin, NoteWithdraw
from ..client.pagination import all_pages
from ..context import absolute, cwd, mission_id, this_agent
from ..output import console, tables
from ..output.tables import Column

EXAMPLES = """\
  fleetctl note decision "Passwords are hashed with argon2" --because "bcrypt cuts at 72 bytes"
  fleetctl note ruled-out "A cache in Redis" --path src/cache.py"""
LIST_EXAMPLES = """\
  fleetctl note list
  fleetctl note list --kind ruled-out --withdrawn"""
KINDS: dict[NoteKind, str] = {
    "decision": "Note a decision.",
    "ruled-out": "Note what was tried or considered, and is not to be done.",
    "constraint": "Note a limit that all work has to keep.",
    "finding": "Note what was found out.",
}
COLUMNS = (
    Column("ID"),
    Column("ADDED", matters=1, times="ago"),
    Column("KIND", matters=4),
    Column("BY", matters=3, cut="middle", least=10),
    Column("STATE", matters=2),
    Column("NOTE", cut="end", least=20),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    summary = "Keep decisions, constraints, findings and what is ruled out, for all agents."
    actions = group(subparsers, "note", summary)
    for kind, meaning in KINDS.items():
        add = command(actions, kind, partial(_run_add, kind), meaning, EXAMPLES)
        add.add_argument("text", metavar="TEXT", help="the note, at most 2,000 characters")
        add.add_argument("--because", metavar="TEXT", help="the reason")
        add.add_argument("--path", metavar="PATH", help="the file or directory that it concerns")
        mission_option(add)
        add.add_argument(
            "--agent", completes="agent", help="the author (default: this shell's agent, or you)"
        )
    listing = command(actions, "list", _run_list, "List a mission's notes.", LIST_EXAMPLES)
    mission_option(listing)
    listing.add_argument("--kind", choices=get_args(NoteKind), help="only notes of this kind")
    agent_option(listing, "only notes of this agent")
    listing.flag("--withdrawn", help="also notes that were withdrawn, with the reason")
    show = command(actions, "show", _run_show, "Show a note, also a withdrawn one.")
    show.add_argument("note_id", completes="note")
    withdraw = command(actions, "withdraw", _run_withdraw, "Withdraw a note; it stays in the list.")
    withdraw.add_argument("note_id", completes="note")
    withdraw.add_argument("--reason", metavar="TEXT", required=True, help="why it does not hold")
    withdraw.add_argument("--agent", completes="agent", help="the agent that withdraws it")
    summary = "Pin a note: it comes first in each briefing. Agents cannot."
    pin = command(actions, "pin", _run_pin, summary)
    pin.add_argument("note_id", completes="note")
    pin.flag("--remove", help="remove the pin")


def _run_add(kind: NoteKind, args: Namespace) -> int:
    with Fleet() as client:
        note = client.call(
            NoteAdd(
                kind=kind,
                text=args.text,
                because=args.because,
                path=absolute(args.path) if args.path else None,
                mission_id=mission_id(client, args.mission),
                cwd=cwd(),
                agent_id=args.agent or this_agent(),
            )
        )
    return console.result(args, note, f"Noted: {note.id}  {note.kind}  {console.clean(note.text)}")


def _run_list(args: Namespace) -> int:
    with Fleet() as client:
        terms = {
            "mission_id": mission_id(client, args.mission),
            "kind": args.kind,
            "agent_id": args.agent,
            "withdrawn": args.withdrawn,
        }
        notes = all_pages(lambda **more: client.call(NoteList(**terms, **more)).notes)
    rows = [
        (each.id, each.created_at, each.kind, _author(each), _state(each), _full_text(each))
        for each in notes
    ]
    return tables.show(args, notes, COLUMNS, rows, "No notes found.")


def _run_show(args: Namespace) -> int:
    return console.show(args, call(NoteGet(note_id=args.note_id)), _show)


def _show(note: Note) -> None:
    console.fields(
        (
            ("Note", note.id),
            ("Mission", note.mission_id),
            ("Added", console.ago(note.created_at)),
            ("Kind", note.kind),
            ("By", _author(note)),
            ("State", _state(note)),
            ("Text", note.text),
            ("Because", note.because),
            ("Path", console.path(note.path) if note.path else None),
            ("Withdrawn", note.withdrawn_reason),
        )
    )


def _author(note: Note) -> str:
    if note.origin == "fact":
        return f"fleetd ({note.agent_id})"
    return note.agent_id or "a person"


def _state(note: Note) -> str:
    if note.withdrawn_at is not None:
        return "withdrawn"
    return "pinned" if note.pinned_at is not None else ""


def _full_text(note: Note) -> str:
    because = f", because {note.because}" if note.because else ""
    path = f" [{console.path(note.path)}]" if note.path else ""
    withdrawn = f" (withdrawn: {note.withdrawn_reason})" if note.withdrawn_at else ""
    return f"{note.text}{because}{path}{withdrawn}"


def _run_withdraw(args: Namespace) -> int:
    agent = args.agent or this_agent()
    note = call(NoteWithdraw(note_id=args.note_id, reason=args.reason, agent_id=agent))
    return console.result(args, note, f"Note withdrawn: {note.id}  {console.clean(note.text)}")


def _run_pin(args: Namespace) -> int:
    note = call(NotePin(note_id=args.note_id, pinned=not args.remove, agent_id=this_agent()))
    done = "Pin removed" if args.remove else "Note pinned"
    return console.result(args, note, f"{done}: {note.id}  {console.clean(note.text)}")
