"""``fleetctl migrate``: has the daemon's program move the store, and shows what came of it.

Only that program touches a store, also while no daemon runs.
"""

from argparse import Namespace
from collections.abc import Iterator
from importlib import resources

import msgspec

from fleetd import config
from fleetd.protocol.migration import Migration, MigrationRequest

from ..args import Subparsers, UsageError, command, yes_option
from ..output import console, tables
from ..output.progress import bar
from ..prompts import Cancelled, confirm
from ._store_job import carry

QUESTION = "Go on with a store that was moved away? What the other one has seen since is not in it."
_DIGITS = 16


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    moving = command(
        subparsers,
        "migrate",
        run,
        "Move the store of this machine to a PostgreSQL server, or back, while fleetd is stopped. "
        "Both are compared whole before the new one counts; the old one stays as it was, and says "
        "that it was moved.",
        "  fleetctl migrate --to postgresql://fleet@db.example.org/fleet\n"
        "  fleetctl migrate --to sqlite\n"
        "  fleetctl migrate --check\n"
        "  fleetctl migrate --roles | psql postgresql://postgres@db.example.org/fleet",
    )
    moving.add_argument(
        "--to",
        metavar="WHERE",
        default="",
        help="the server's URL, without a password, since others see the arguments of a program; "
        "or sqlite for the database of this machine (default: the setting store)",
    )
    moving.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        default="",
        help="the server that is left, with --to sqlite (default: the setting store)",
    )
    instead = moving.add_mutually_exclusive_group()
    for option, text in (
        ("check", "compare both stores, and change nothing"),
        ("undo", "go on with a store that was moved away, under a new epoch"),
        ("schema", "only bring the server's schema to this version, as the role that owns it"),
        ("roles", "print the SQL that makes an owner and a least-privilege role for daemons"),
    ):
        instead.add_argument(
            f"--{option}", dest="what", action="store_const", const=option, help=text
        )
    yes_option(moving)


def run(args: Namespace) -> int:
    """Have it done, and show it."""
    what = args.what or "move"
    if what == "roles":
        return _print_roles(args)
    if args.source and args.to != "sqlite":
        raise UsageError("--from names the server that is left, with --to sqlite only.")
    if what == "undo" and not args.yes and not confirm(QUESTION):
        raise Cancelled("Nothing was changed.")
    with bar(args, "Moving") as drawn:
        said = carry(MigrationRequest(what=what, to=args.to, source=args.source), drawn)
    if said.report is None:
        return console.result(args, {"done": said.done}, said.done or "")
    if args.json:
        console.print_json(msgspec.to_builtins(said.report))
    else:
        _show(said.report)
    return int(not said.report.same)


def _print_roles(args: Namespace) -> int:
    script = resources.files("fleetd") / "share" / "postgres" / "roles.sql"
    text = script.read_text("utf-8")
    return console.show(args, {"sql": text}, lambda _: print(text, end=""))


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
                _counted(check.source_rows, check.target_rows),
                check.source_digest[:_DIGITS],
                "yes" if check.same else f"no, from {check.first_difference}",
            ]
            for check in report.tables
        ],
    )
    if report.moved:
        console.lines(_next_steps(report))


def _counted(here: int, there: int) -> str:
    return f"{here:,}" if here == there else f"{here:,} and {there:,}"


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
