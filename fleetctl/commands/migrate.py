"""``fleetctl migrate``: lets the daemon's program move the store, and shows the outcome.

Only that program accesses a store, also while no daemon runs.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import msgspec

from fleetd import config
from fleetd.protocol.errors import Internal, from_wire
from fleetd.protocol.migration import Migration, MigrationReply, MigrationRequest

from ..args import Namespace, Subparsers, UsageError, command, yes_option
from ..client import Progress
from ..output import console, tables
from ..output.progress import progress_bar
from ..prompts import confirm_or_cancel

QUESTION = "Go on with a store that was moved away? What the other one has seen since is not in it."
_DIGITS = 16
_ROOT = Path(__file__).resolve().parents[2]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    moving = command(
        subparsers,
        "migrate",
        run,
        "Move the store of this machine to a PostgreSQL server, or back, while fleetd is stopped. "
        "Both stores are compared before fleetd uses the new one. The old store stays unchanged, "
        "but is marked as moved.",
        "  fleetctl migrate --to postgresql://fleet@db.example.org/fleet\n"
        "  fleetctl migrate --to sqlite\n"
        "  fleetctl migrate --check\n"
        "  fleetctl migrate --roles | psql postgresql://postgres@db.example.org/fleet",
    )
    moving.add_argument(
        "--to",
        metavar="WHERE",
        default="",
        help="the URL of the server, or sqlite for the database of this machine (default: the "
        "setting store). Give no password in the URL: other users can read arguments",
    )
    moving.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        default="",
        help="with --to sqlite: the URL of the old server (default: the setting store)",
    )
    instead = moving.add_mutually_exclusive_group()
    for option, text in (
        ("check", "only compare both stores"),
        ("undo", "use the old store again, under a new epoch"),
        ("schema", "only upgrade the schema of the server; connect as its owner"),
        (
            "roles",
            "print SQL that creates an owner role and a role with few privileges for daemons",
        ),
    ):
        instead.add_argument(
            f"--{option}", dest="what", action="store_const", const=option, help=text
        )
    yes_option(moving)


def run(args: Namespace) -> int:
    """Run the migration, and show its outcome."""
    what = args.what or "move"
    if what == "roles":
        script = resources.files("fleetd") / "share" / "postgres" / "roles.sql"
        text = script.read_text("utf-8")
        return console.show(args, {"sql": text}, lambda _: print(text, end=""))
    if args.source and args.to != "sqlite":
        raise UsageError("--from is allowed only with --to sqlite.")
    if what == "undo" and not args.yes:
        confirm_or_cancel(QUESTION, "Nothing was changed.")
    with progress_bar(args, "Moving") as drawn:
        reply = run_job(MigrationRequest(what=what, to=args.to, source=args.source), drawn)
    if reply.report is None:
        return console.result(args, {"done": reply.done}, reply.done or "")
    report = reply.report
    console.show(args, msgspec.to_builtins(report), lambda _: _show(report))
    return int(not report.same)


def run_job(
    job: MigrationRequest, draw: Callable[[Progress], None] | None = None
) -> MigrationReply:
    """Let this version of the daemon's program work on the store; raises the error it reports."""
    sys.stdout.flush()
    with subprocess.Popen(
        [sys.executable, "-m", "fleetd", "--migrate"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as fleetd:
        if fleetd.stdin is None or fleetd.stdout is None:
            raise AssertionError("both are pipes")
        fleetd.stdin.write(msgspec.json.encode(job) + b"\n")
        fleetd.stdin.close()
        last = _read_replies(fleetd.stdout, draw)
    if last is None:
        raise Internal(
            f"fleetd ended without a result (exit status {fleetd.returncode}).",
            hint="Read its output above. An unfinished store is not used.",
        )
    if last.error is not None:
        raise from_wire(last.error["code"], last.error["message"], last.error["data"])
    return last


def _read_replies(
    lines: Iterator[bytes], draw: Callable[[Progress], None] | None
) -> MigrationReply | None:
    """Read to the end, draw the progress, and return the last reply."""
    last = None
    for line in lines:
        reply = msgspec.json.decode(line, type=MigrationReply)
        if reply.progress is None:
            last = reply
        elif draw is not None:
            what, done, total = reply.progress
            draw(Progress(what, done, total))
    return last


def _show(report: Migration) -> None:
    console.line(
        f"{'Moved' if report.moved else 'Compared'} {report.source}"
        f" {'to' if report.moved else 'with'} {report.target}:"
    )
    tables.table(
        ["TABLE", "ROWS", "SHA-256", "SAME"],
        [
            [
                check.table,
                f"{check.source_rows:,}"
                if check.source_rows == check.target_rows
                else f"{check.source_rows:,} and {check.target_rows:,}",
                check.source_digest[:_DIGITS],
                "yes" if check.same else f"no, from {check.first_difference}",
            ]
            for check in report.tables
        ],
    )
    if report.moved:
        console.lines(_next_steps(report))


def _next_steps(report: Migration) -> Iterator[str]:
    yield ""
    yield f"What was in use stays where it was, and says that it was moved: {report.source}"
    if report.replaced:
        yield f"The database before it lies in {report.replaced}"
    loaded = config.load()
    if config.without_password(loaded.config.store) != report.setting:
        origin = loaded.origins.get("store", "")
        variable = origin.removeprefix("environment ") if origin.startswith("env") else ""
        where = f"{variable} where fleetd gets it from" if variable else f"in {loaded.file}"
        yield f"Now set {where}: " + (
            f"{variable}={report.setting}" if variable else f'store = "{report.setting}"'
        )
        if report.setting:
            yield "  (where the role that owns the tables moved it: with the daemons' role instead)"
    yield "Then start fleetd: fleetctl daemon start"
