"""``fleetctl lock``: leases on files, directories and patterns."""

import os
from pathlib import Path
from typing import Any

from fleetd.protocol.errors import NotFound

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
from ..context import LOCK_KEY_PREFIXES, absolute, cwd, cwd_or_root, lock_target
from ..output import console, tables
from ..output.tables import Column

WEEK_MS = 7 * 86_400_000
_HEX_DIGITS = set("0123456789abcdef")
EXAMPLES = """\
  fleetctl lock acquire src/auth.ts --agent specialist-1
  fleetctl lock acquire src/parser/ --agent specialist-1
  fleetctl lock acquire 'src/**/*.sql' --agent specialist-2 --shared
  fleetctl lock acquire src/auth.ts --agent specialist-2 --wait-ms 30000"""
LIST_EXAMPLES = """\
  fleetctl lock list --here
  fleetctl lock list --agent alice --all"""
COLUMNS = (
    Column("ID"),
    Column("STATUS", matters=3, styles=console.STATES),
    Column("MODE", matters=1),
    Column("HELD BY", matters=6, cut="middle", least=10),
    Column("PURPOSE", matters=2, cut="end"),
    Column("TOKEN", matters=1),
    Column("EXPIRES", matters=5, times="lease"),
    Column("FILE", cut="middle", least=24),
)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "lock", "Lock files for one agent at a time.")
    acquire = command(
        actions,
        "acquire",
        _run_acquire,
        "Lock a file, a directory with all in it, or the files of a pattern for a limited time.",
        EXAMPLES,
    )
    acquire.add_argument(
        "file",
        metavar="FILE",
        help="the file or directory to lock; with * or ? a pattern as in .gitignore, in quotes",
    )
    acquire.flag("--pattern", help="FILE is a pattern, also without * and ?: 'src/[ab].py'")
    acquire.flag("--shared", help="let other agents hold shared locks on the same files")
    acquire.flag("--all", help="allow a lock on a whole repository")
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
        "Show the locks that cover a file. With TOKEN, check that a fencing token is still valid "
        "for it. Exit status 1 when it is not.",
        "  fleetctl lock check src/auth.ts\n  fleetctl lock check src/auth.ts 17",
    )
    check.add_argument("file", metavar="FILE", help="the file")
    check.add_argument(
        "fencing_token",
        type=whole_number(0),
        metavar="TOKEN",
        nargs="?",
        help="the fencing token of a lock",
    )
    listing = command(actions, "list", _run_list, "List locks, oldest first.", LIST_EXAMPLES)
    listing.add_argument("--mission", completes="mission", help="only locks of this mission")
    listing.add_argument("--agent", completes="agent", help="only locks of this agent")
    listing.add_argument(
        "--file", metavar="FILE", help="only locks on this file, directory or pattern"
    )
    listing.flag("--here", help="only locks on files of this repository")
    listing.flag("--all", help="also released and expired locks")


def _lock_command(actions: Subparsers, name: str, run: Run, summary: str) -> CommandParser:
    parser = command(actions, name, run, summary)
    parser.add_argument(
        "lock_id", metavar="LOCK", completes="lock.active", help="the lock's id, or what is locked"
    )
    parser.add_argument(
        "--agent", completes="agent", required=True, help="the agent that runs this command"
    )
    return parser


def _absolute_file(file: str) -> str:
    """Return a file in the form of a request: absolute, from home, or the key that a lock shows."""
    return file if file.startswith((*LOCK_KEY_PREFIXES, "~/")) else absolute(file)


def _lock_id(client: Fleet, lock: str, agent: str, *, own: bool = True) -> str:
    """Return the id of a lock, given by its id or by its target; raises NotFound.

    Of shared locks it prefers the agent's own, or another agent's if ``own`` is false.
    """
    if lock.startswith("lck-"):
        return lock
    found = client.call(LockList(**_of_target(lock))).locks
    if not found:
        if set(lock) <= _HEX_DIGITS:  # the beginning of an id
            return lock
        raise NotFound(
            f"There is no lock on {console.path(lock)}.",
            hint="Names start at the current directory. fleetctl lock list shows all locks.",
        )
    found.sort(key=lambda each: (each.held_by == agent) != own)
    return found[0].id


def _of_target(named: str) -> dict[str, Any]:
    """Return the parameters that select the locks on a file, a directory or a pattern."""
    target = lock_target(named, cwd_or_root())
    if "file" in target:
        return {"file": _absolute_file(named)}
    return {**target, "cwd": cwd()}


def _run_acquire(args: Namespace) -> int:
    here = cwd()
    target = lock_target(args.file, here, pattern=args.pattern)
    if "file" in target and "[" in args.file and not os.path.lexists(Path(here, args.file)):
        console.warn(f"Locking the file {args.file}; to lock a pattern, give --pattern.")
    lock = call(
        LockAcquire(
            **target,
            mode="shared" if args.shared else "exclusive",
            all=args.all,
            agent_id=args.agent,
            mission_id=args.mission,
            cwd=here,
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
        f"Held by: {lock.held_by}{', shared' if lock.mode == 'shared' else ''}",
        f"Expires: {console.ago(lock.expires_at)}",
        f"Fencing token: {lock.fencing_token}",
    )


def _path_of(lock: Lock) -> str:
    """Return a lock's file in a form that means the same everywhere."""
    return console.path(lock.normalized_path or lock.file)


def _run_renew(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id, args.agent)
        request = LockRenew(lock_id=lock_id, agent_id=args.agent, timeout_ms=args.timeout_ms)
        lock = client.call(request)
    return _granted(args, lock, "renewed")


def _run_release(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id, args.agent)
        lock = client.call(LockRelease(lock_id=lock_id, agent_id=args.agent))
    return console.result(args, lock, f"Lock released: {lock.id}  {_path_of(lock)}")


def _run_force_release(args: Namespace) -> int:
    with Fleet() as client:
        lock_id = _lock_id(client, args.lock_id, args.agent, own=False)
        request = LockForceRelease(lock_id=lock_id, agent_id=args.agent, reason=args.reason)
        lock = client.call(request)
    taken = f"Lock released by force: {lock.id}  {_path_of(lock)} (was held by {lock.held_by})"
    return console.result(args, lock, taken)


def _run_check(args: Namespace) -> int:
    file, token, here = _absolute_file(args.file), args.fencing_token, cwd_or_root()
    validity = call(LockCheck(file=file, fencing_token=token, cwd=here))
    if token is None:
        if args.json:  # one document, as with a token
            console.print_json(validity)
            return 0
        rows = [_row(each, validity.paths) for each in validity.locks]
        return tables.show(args, validity.locks, COLUMNS, rows, "No lock covers this file.")
    text = "The token is valid." if validity.valid else "The token is no longer valid."
    console.result(args, validity, text)
    return 0 if validity.valid else 1


def _run_list(args: Namespace) -> int:
    paths: dict[str, str] = {}
    selected = _of_target(args.file) if args.file else {}

    def page(**more: Any) -> list[Lock]:
        found = client.call(
            LockList(
                mission_id=args.mission,
                held_by=args.agent,
                active=not args.all,
                here=args.here,
                **({"cwd": cwd() if args.here else cwd_or_root()} | selected | more),
            )
        )
        paths.update(found.paths)
        return found.locks

    with Fleet() as client:
        locks = all_pages(page)
    return tables.show(
        args, locks, COLUMNS, [_row(each, paths) for each in locks], "No locks found."
    )


def _row(lock: Lock, paths: dict[str, str]) -> tuple[str, ...]:
    # Only exact output shows when an inactive lock ended.
    exact = not console.human_readable()
    return (
        lock.id,
        lock.status,
        lock.mode,
        lock.held_by,
        lock.purpose,
        str(lock.fencing_token),
        (lock.expires_at or "") if lock.status == "active" or exact else "",
        console.path(paths.get(lock.id, lock.file)),
    )
