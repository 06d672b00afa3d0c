"""``fleetctl lock``: leases on files."""

from typing import Any

from ..args import CommandParser, Namespace, Run, Subparsers, command, group, whole_number
from ..client import Fleet, call
from ..client.models import (
    Lock,
    LockAcquire,
    LockCheck,
    LockForceRelease,
    LockList,
    LockRelease,
    LockRenew,
)
from ..client.pagination import all_pages
from ..context import LOCK_KEY_PREFIXES, absolute, cwd, cwd_or_root
from ..output import console, tables
from ..output.tables import Column

WEEK_MS = 7 * 86_400_000
EXAMPLES = """\
  fleetctl lock acquire src/auth.ts --agent specialist-1
  fleetctl lock acquire src/auth.ts --agent specialist-2 --wait-ms 30000"""
LIST_EXAMPLES = """\
  fleetctl lock list --here
  fleetctl lock list --agent alice --all"""
COLUMNS = (
    Column("ID"),
    Column("STATUS", matters=3, styles=console.STATES),
    Column("HELD BY", matters=6, cut="middle", least=10),
    Column("PURPOSE", matters=2, cut="end"),
    Column("TOKEN", matters=1),
    Column("EXPIRES", matters=5, times="lease"),
    Column("FILE", cut="middle", least=24),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "lock", "Lock files for one agent at a time.")
    acquire = command(actions, "acquire", _run_acquire, "Lock a file for a limited time.", EXAMPLES)
    acquire.add_argument("file", metavar="FILE", help="the file to lock")
    acquire.add_argument(
        "--agent", completes="agent", required=True, help="the agent that holds the lock"
    )
    acquire.add_argument("--mission", completes="mission", help="the mission of the lock")
    acquire.add_argument(
        "--purpose", metavar="TEXT", default="edit", help="the purpose of the lock (default: edit)"
    )
    acquire.add_argument(
        "--timeout-ms",
        type=whole_number(1, WEEK_MS),
        metavar="MS",
        help="the time until the lock expires (default: 600000, 10 minutes)",
    )
    acquire.add_argument(
        "--wait-ms",
        type=whole_number(0, WEEK_MS),
        metavar="MS",
        default=0,
        help="the longest time to wait for the lock (default: 0)",
    )
    renew = _lock_command(actions, "renew", _run_renew, "Extend the time of a lock.")
    renew.add_argument(
        "--timeout-ms",
        type=whole_number(1, WEEK_MS),
        metavar="MS",
        help="the time until the lock expires",
    )
    _lock_command(actions, "release", _run_release, "Release a lock.")
    force = _lock_command(
        actions, "force-release", _run_force_release, "Release a lock that another agent holds."
    )
    force.add_argument("--reason", metavar="TEXT", required=True, help="the reason")
    check = command(
        actions,
        "check",
        _run_check,
        "Check that a fencing token is still valid for a file. Exit status 1 when it is not.",
    )
    check.add_argument("file", metavar="FILE", help="the locked file")
    check.add_argument(
        "fencing_token",
        type=whole_number(0),
        metavar="TOKEN",
        help="the fencing token of the lock",
    )
    listing = command(actions, "list", _run_list, "List locks, oldest first.", LIST_EXAMPLES)
    listing.add_argument("--mission", completes="mission", help="only locks of this mission")
    listing.add_argument("--agent", completes="agent", help="only locks of this agent")
    listing.add_argument("--file", metavar="FILE", help="only locks on this file")
    listing.flag("--here", help="only locks on files of this repository")
    listing.flag("--all", help="also released and expired locks")


def _lock_command(actions: Subparsers, name: str, run: Run, summary: str) -> CommandParser:
    parser = command(actions, name, run, summary)
    parser.add_argument(
        "lock_id", metavar="LOCK", completes="lock.active", help="the lock's id, or the locked file"
    )
    parser.add_argument(
        "--agent", completes="agent", required=True, help="the agent that runs this command"
    )
    return parser


def _absolute_file(file: str) -> str:
    """Return a file as a request names it: absolute, from home, or the key that a lock shows."""
    return file if file.startswith((*LOCK_KEY_PREFIXES, "~/")) else absolute(file)


def _lock_id(client: Fleet, lock: str) -> str:
    """Return the id of a lock that is given by its id, or by the file it is on."""
    if lock.startswith("lck-"):
        return lock
    found = client.call(LockList(file=_absolute_file(lock))).locks
    return found[0].id if found else lock


def _run_acquire(args: Namespace) -> int:
    lock = call(
        LockAcquire(
            file=args.file,
            agent_id=args.agent,
            mission_id=args.mission,
            cwd=cwd(),
            purpose=args.purpose,
            timeout_ms=args.timeout_ms,
            wait_ms=args.wait_ms,
        )
    )
    return _granted(args, lock, "acquired")


def _granted(args: Namespace, lock: Lock, verb: str) -> int:
    return console.result(
        args,
        lock,
        f"Lock {verb}: {lock.id}",
        f"File: {_path_of(lock)}",
        f"Held by: {lock.held_by}",
        f"Expires: {console.ago(lock.expires_at)}",
        f"Fencing token: {lock.fencing_token}",
    )


def _path_of(lock: Lock) -> str:
    """Return a lock's file so that it means the same wherever it is read."""
    return console.path(lock.normalized_path or lock.file)


def _run_renew(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id)
        request = LockRenew(lock_id=lock_id, agent_id=args.agent, timeout_ms=args.timeout_ms)
        lock = client.call(request)
    return _granted(args, lock, "renewed")


def _run_release(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id)
        lock = client.call(LockRelease(lock_id=lock_id, agent_id=args.agent))
    return console.result(args, lock, f"Lock released: {lock.id}  {_path_of(lock)}")


def _run_force_release(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id)
        request = LockForceRelease(lock_id=lock_id, agent_id=args.agent, reason=args.reason)
        lock = client.call(request)
    taken = f"Lock released by force: {lock.id}  {_path_of(lock)} (was held by {lock.held_by})"
    return console.result(args, lock, taken)


def _run_check(args: Namespace) -> int:
    validity = call(LockCheck(file=_absolute_file(args.file), fencing_token=args.fencing_token))
    text = "The token is valid." if validity.valid else "The token is no longer valid."
    console.result(args, validity, text)
    return 0 if validity.valid else 1


def _run_list(args: Namespace) -> int:
    paths: dict[str, str] = {}

    def page(**more: Any) -> list[Lock]:
        found = client.call(
            LockList(
                mission_id=args.mission,
                held_by=args.agent,
                file=_absolute_file(args.file) if args.file else None,
                active=not args.all,
                cwd=cwd() if args.here else cwd_or_root(),
                here=args.here,
                **more,
            )
        )
        paths.update(found.paths)
        return found.locks

    with Fleet() as client:
        locks = all_pages(page)
    # When a lock ended that is not active any more, only exact output says.
    exact = not console.human_readable()
    rows = [
        (
            each.id,
            each.status,
            each.held_by,
            each.purpose,
            str(each.fencing_token),
            (each.expires_at or "") if each.status == "active" or exact else "",
            console.path(paths.get(each.id, each.file)),
        )
        for each in locks
    ]
    return tables.show(args, locks, COLUMNS, rows, "No locks found.")
