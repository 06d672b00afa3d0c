"""``fleetctl reopen``: the sessions that ended, and the commands that open them again."""

from typing import TYPE_CHECKING, Any, NamedTuple

from fleetd.protocol.errors import FleetError, InvalidState

from ..args import Namespace, Subparsers, UsageError, command
from ..client import Fleet
from ..client.models import Session, SessionList
from ..launch import run as launching
from ..launch.commands import Launch, reopening
from ..output import console

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
  fleetctl reopen
  fleetctl reopen claude-1f0c2a9b --exec
  fleetctl reopen --lost --tmux
  fleetctl reopen --mission msn-1a2b3c4d --json"""
# More windows than this are probably a mistake.
MOST_WINDOWS = 30
_ENDED = {"closed": "closed", "vanished": "ended at its prompt", "lost": "lost", None: "alive"}
_SHOWN_OF_COMMIT = 12


class Refused(InvalidState):
    """A session cannot be reopened in the present situation."""


class _Entry(NamedTuple):
    """A session, the changes since its last sign, and its command or why there is none."""

    session: Session
    differences: list[str]
    launch: Launch | None
    problem: FleetError | None


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "reopen",
        run,
        "Show the sessions that ended without being closed, with the command that opens each"
        " again; or open them.",
        EXAMPLES,
        details="Without a selection it lists those of the last 7 days whose agent was lost, or"
        " whose process ended at the prompt. After a reboot, that is every session that was open.",
    )
    parser.add_argument(
        "agents", nargs="*", metavar="AGENT", completes="agent", help="only these agents' sessions"
    )
    parser.flag("--lost", help="only sessions of lost agents, of any age")
    parser.flag("--all", help="every session, also those that were closed or still run")
    parser.add_argument(
        "--mission",
        metavar="ID",
        completes="mission",
        help="every session of the agents of a mission",
    )
    parser.flag("--print", help="only show them (the default)")
    parser.flag(
        "--tmux", help="open each in a new window: of your tmux session, or of one named fleet"
    )
    parser.flag("--exec", help="open one session in this terminal")
    parser.flag("--force", help="also open a session that still lives, a second time")


def run(args: Namespace) -> int:
    """List the sessions, and open them if requested."""
    _check(args)
    entries = [_entry(session, force=args.force) for session in _wanted(args)]
    if args.tmux or args.exec:
        return _open(args, entries)
    console.show(args, _document(entries), lambda _: _show(entries, of_all=args.all))
    # Each named session was to be opened.
    return int(bool(args.agents) and any(each.launch is None for each in entries))


def _check(args: Namespace) -> None:
    """Raise UsageError for options that exclude each other."""
    if sum((args.print, args.tmux, args.exec)) > 1:
        raise UsageError("Only one of --print, --tmux and --exec can be given.")
    if args.agents and (args.lost or args.all or args.mission):
        raise UsageError("AGENT cannot be given with --lost, --all or --mission.")
    if args.lost and args.all:
        raise UsageError("Only one of --lost and --all can be given.")
    if args.exec and args.json:
        raise UsageError("--json cannot be given with --exec: the terminal is the session's.")


def _wanted(args: Namespace) -> list[Session]:
    """Return the requested sessions, the one with the newest sign first."""
    found: dict[str, Session] = {}
    with Fleet() as client:
        for agent in dict.fromkeys(args.agents):
            page = client.call(SessionList(agent_id=agent))
            if not page.sessions:
                raise Refused(
                    f"Agent {agent} has no session that could be opened again.",
                    hint="Only agent CLIs with hooks report sessions: fleetctl hooks status",
                )
            found |= {each.agent_id: each for each in page.sessions}
        if not args.agents:
            found = {each.agent_id: each for each in _selected(client, args)}
    return sorted(found.values(), key=lambda each: each.last_event_at, reverse=True)


def _selected(client: Fleet, args: Namespace) -> "list[Session]":
    which = "lost" if args.lost else "all" if args.all or args.mission else "cut_off"
    sessions: list[Session] = []
    after = None
    while True:
        page = client.call(
            SessionList(which=which, mission_id=args.mission, limit=1_000, after=after)  # type: ignore[arg-type]
        )
        sessions += page.sessions
        after = page.after
        if after is None:
            return sessions


def _entry(session: Session, *, force: bool) -> _Entry:
    try:
        launch = reopening(session.harness, session.session_id, session.directory)
        _check_session(session, launch, force=force)
    except FleetError as problem:
        return _Entry(session, _differences(session), None, problem)
    return _Entry(session, _differences(session), launch, None)


def _check_session(session: Session, launch: Launch, *, force: bool) -> None:
    """Raise Refused if a session cannot be opened here."""
    if session.machine is not None:
        raise Refused(
            f"The session of {session.agent_id} is on another machine: {session.machine}.",
            hint=f"On {session.machine}: fleetctl reopen {session.agent_id}",
        )
    if session.alive and not force:
        raise Refused(
            f"The session of {session.agent_id} still lives; its last sign was"
            f" {console.ago(session.last_event_at)}.",
            hint="Close it first. --force opens it a second time.",
        )
    launching.check_directory(launch)
    launch.executable()


def _differences(session: Session) -> list[str]:
    """Return, in sentences, the changes since the last sign of a session."""
    then, now = session.place, session.now
    if now is None or not now.directory_exists:
        return []
    if not now.cwd_exists:
        return [f"It worked in {session.cwd}, which is not there any more."]
    if then.worktree is None:
        return []
    if then.worktree != now.worktree:
        is_now = f"is now {now.worktree}" if now.worktree else "is gone"
        return [f"The work tree was {then.worktree} and {is_now}."]
    differences = []
    # If neither is known, Git stores its branches in another way.
    if (then.branch or then.head) and (now.branch or now.head):
        if then.branch != now.branch:
            was, is_now = (each or "none (a commit)" for each in (then.branch, now.branch))
            differences.append(f"The branch was {was} and is now {is_now}.")
        if then.head != now.head:
            was, is_now = (_commit(each) for each in (then.head, now.head))
            differences.append(f"HEAD was {was} and is now {is_now}.")
    return differences


def _commit(head: str | None) -> str:
    return head[:_SHOWN_OF_COMMIT] if head else "no commit"


def _document(entries: "Sequence[_Entry]") -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "sessions": [
            {
                **_fields(each.session),
                "differences": each.differences,
                "command": each.launch.shell_line if each.launch else None,
                "problem": each.problem.message if each.problem else None,
            }
            for each in entries
        ]
    }


def _fields(session: Session) -> dict[str, Any]:
    import json

    found: dict[str, Any] = json.loads(console.to_json(session))
    return found


def _show(entries: "Sequence[_Entry]", *, of_all: bool) -> None:
    if not entries and of_all:
        console.line(
            "No session is known. Agent CLIs with hooks report them: fleetctl hooks status"
        )
    elif not entries:
        console.line("No session to reopen. fleetctl reopen --all lists those that were closed.")
    for each in entries:
        _show_one(each)


def _show_one(entry: _Entry) -> None:
    session = entry.session
    parts = (
        session.agent_id,
        _ENDED.get(None if session.alive else session.ended, str(session.ended)),
        f"last sign {console.ago(session.last_event_at)}",
        session.mission,
    )
    console.line("  ".join(filter(None, parts)))
    console.whole(f"  {_place(session)}")
    if session.succeeded_by:
        console.line(f"  {session.succeeded_by} took over its work.")
    for each in entry.differences:
        console.whole(f"  {each}")
    if entry.launch:
        console.whole(f"  {entry.launch.shell_line}")
    elif entry.problem:
        console.line(f"  {entry.problem.message}")
        if entry.problem.hint:
            console.line(f"  {entry.problem.hint}")


def _place(session: Session) -> str:
    """Return the directory of a session, with the branch and the commit of its last sign."""
    there = filter(None, (session.place.branch, session.place.head and _commit(session.place.head)))
    revision = ", ".join(there)
    directory = console.path(session.directory or "unknown directory")
    return f"{directory} ({revision})" if revision else directory


def _open(args: Namespace, entries: "Sequence[_Entry]") -> int:
    """Open the sessions that can be opened; of named sessions, all or none."""
    for each in entries:
        if each.problem and (args.agents or len(entries) == 1):
            raise each.problem
        for warning in [each.problem.message] if each.problem else each.differences:
            console.warn(f"{each.session.agent_id}: {warning}")
    ready = [(each.session, each.launch) for each in entries if each.launch]
    if not ready:
        raise Refused(
            "There is no session to reopen.", hint="fleetctl reopen --all lists every session."
        )
    if args.exec:
        if len(ready) > 1:
            names = ", ".join(session.agent_id for session, _ in ready[:5])
            raise Refused(
                f"--exec opens one session in this terminal, and {len(ready)} are selected.",
                hint=f"Name one ({names}), or open them with --tmux.",
            )
        launching.in_place(ready[0][1])
    if len(ready) > MOST_WINDOWS:
        raise Refused(
            f"--tmux opens {MOST_WINDOWS} windows at most, and {len(ready)} sessions are selected.",
            hint="Name the agents, or select with --lost or --mission.",
        )
    return _open_windows(args, ready)


def _open_windows(args: Namespace, ready: "Sequence[tuple[Session, Launch]]") -> int:
    windows = launching.in_tmux([(session.agent_id, launch) for session, launch in ready])
    opened = [
        {"agent_id": session.agent_id, "window": window}
        for (session, _), window in zip(ready, windows, strict=True)
    ]
    lines = [f"{each['agent_id']} is open in tmux, window {each['window']}." for each in opened]
    attach = launching.attaching()
    lines += [f"To see it: {attach}"] if attach else []
    return console.result(args, {"opened": opened, "attach": attach}, *lines)
