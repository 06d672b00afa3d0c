"""``fleetctl hooks``: put fleetd's hooks into agent CLIs, take them out, see how they do."""

from argparse import BooleanOptionalAction, Namespace
from pathlib import Path

from fleetd.wire.errors import NotFound

from .. import render, screen
from ..findings import show
from ..hooking import checks, heard
from ..hooking.changes import Change, installing, uninstalling
from ..hooking.harnesses import HARNESSES, Harness
from ..hooking.hook_command import this_installation
from ..hooking.state import State, state
from ..hooking.writing import Deed, carry_out
from ..options import Parser, Run, Subparsers, UsageError, command, group, yes_option
from ..protocol import Finding, Findings
from ..tables import Column
from ..target import project_dir


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers,
        "hooks",
        "Let agent CLIs tell fleetd what they do: " + ", ".join(HARNESSES) + ".",
    )
    summary = "Add fleetd's hooks to the settings of agent CLIs; what is there stays as it is."
    install = _changing(
        actions,
        "install",
        run_install,
        summary,
        "  fleetctl hooks install --all\n"
        "  fleetctl hooks install claude codex --dry-run\n"
        "  fleetctl hooks install claude --enforce-locks",
    )
    install.add_argument(
        "--enforce-locks",
        action=BooleanOptionalAction,
        default=None,
        help="deny an edit of a file that another agent holds (default: as it is, at first no)",
    )
    summary = "Take fleetd's hooks out of the settings of agent CLIs, and nothing else."
    example = "  fleetctl hooks uninstall --all\n  fleetctl hooks uninstall gemini"
    _changing(actions, "uninstall", run_uninstall, summary, example)
    summary = "Show where hooks are installed and what was heard of them."
    _looking(actions, "status", run_status, summary, "  fleetctl hooks status")
    summary = (
        "Look for hooks that cannot work, and run the installed command once; exit status 1 when "
        "something is wrong."
    )
    example = "  fleetctl hooks doctor\n  fleetctl hooks doctor codex"
    _looking(actions, "doctor", run_doctor, summary, example)


def _changing(actions: Subparsers, name: str, run: Run, summary: str, examples: str) -> Parser:
    parser = _looking(actions, name, run, summary, examples)
    parser.add_argument("--all", action="store_true", help="every agent CLI on this machine")
    parser.add_argument("--dry-run", action="store_true", help="show the change, write nothing")
    yes_option(parser)
    return parser


def _looking(actions: Subparsers, name: str, run: Run, summary: str, examples: str) -> Parser:
    parser = command(actions, name, run, summary, examples)
    parser.add_argument(
        "harness", metavar="HARNESS", nargs="*", help="one of " + ", ".join(HARNESSES)
    )
    parser.add_argument(
        "--project",
        action="store_true",
        help="the settings of the project here, instead of the user's",
    )
    return parser


def run_install(args: Namespace) -> int:
    """Show what would be added, ask, and add it."""
    installation, project = this_installation(), _project(args)
    harnesses = [each for each in _chosen(args) if each.is_here() or not args.all]
    if not harnesses:
        raise NotFound(
            f"None of these was found on this machine: {', '.join(HARNESSES)}.",
            hint="Name one to install its hooks all the same: fleetctl hooks install claude",
        )
    deed = Deed(
        lambda each: installing(each, project, installation, enforce=args.enforce_locks),
        Change.install,
        done="installed in",
        nothing="already installed",
    )
    return carry_out(args, harnesses, deed)


def run_uninstall(args: Namespace) -> int:
    """Show what would be taken out, ask, and take it out."""
    project = _project(args)
    deed = Deed(
        lambda each: uninstalling(each, project),
        Change.uninstall,
        done="taken out of",
        nothing="not installed",
    )
    return carry_out(args, _chosen(args), deed)


def _chosen(args: Namespace) -> list[Harness]:
    if unknown := [name for name in args.harness if name not in HARNESSES]:
        raise UsageError(f"{unknown[0]!r} is none of: {', '.join(HARNESSES)}.")
    if args.harness and getattr(args, "all", False):
        raise UsageError("Name agent CLIs or give --all, not both.")
    if not args.harness and not getattr(args, "all", True):
        here = ", ".join(each.name for each in HARNESSES.values() if each.is_here())
        raise UsageError(f"Name an agent CLI, or give --all. On this machine: {here or 'none'}.")
    return [each for name, each in HARNESSES.items() if name in args.harness or not args.harness]


def _project(args: Namespace) -> Path | None:
    return Path(project_dir()) if args.project else None


def run_status(args: Namespace) -> int:
    """Print how every harness stands, and what the daemon heard of it."""
    states = _states(args)
    heard_of = heard.ask()
    if args.json:
        render.print_json(
            {
                "harnesses": [
                    {"hooks": vars(seen), "heard": heard_of.of(seen.harness)} for seen in states
                ],
                "daemon": heard_of.answered,
                "spool": heard_of.spool,
            }
        )
        return 0
    rows = [(*_standing(seen), *heard_of.row(seen.harness)) for seen in states]
    headers = (
        Column("HARNESS"),
        Column("HERE", matters=8, styles={"no": "dim"}),
        Column("HOOKS", styles={"yes": "green", "no": "dim", "?": "red"}),
        *heard.COLUMNS,
    )
    render.table(headers, rows)
    for seen in states:
        _details(seen)
    heard_of.tell()
    if screen.humane() and all(seen.installed == "no" for seen in states):
        print()
        render.flow("", "No hooks are installed. To install those of what is here:")
        render.line("  fleetctl hooks install --all")
    return 0


def _states(args: Namespace) -> list[State]:
    installation = this_installation()
    return [state(each, _project(args), installation) for each in _chosen(args)]


def _standing(seen: State) -> tuple[str, ...]:
    hooks = seen.installed if seen.current or seen.installed == "no" else f"{seen.installed}, old"
    return seen.harness, "yes" if seen.here else "no", "?" if seen.problem else hooks


def _details(seen: State) -> None:
    if seen.installed == "no":
        return
    render.heading(seen.harness)
    render.fields(
        [
            ("File", seen.file),
            ("Problem", seen.problem),
            ("Events", ", ".join(seen.events)),
            ("Missing", ", ".join(seen.missing)),
            ("Lock enforcement", "on" if seen.enforce_locks else None),
            ("Command", seen.commands[0] if seen.commands else None),
            ("Other commands", len(seen.commands) - 1 if len(seen.commands) > 1 else None),
        ]
    )


def run_doctor(args: Namespace) -> int:
    """Examine the hooks that are installed, or those of the harnesses named."""
    states = _states(args)
    heard_of = heard.ask()
    examined = [seen for seen in states if seen.installed != "no" or seen.harness in args.harness]
    found = [heard_of.finding()]
    if not examined:
        told = "no hooks are installed; run: fleetctl hooks install --all"
        found.append(Finding(check="installed", ok=False, detail=told))
    for seen in examined:
        harness = HARNESSES[seen.harness]
        found += checks.findings(harness, seen, heard_of.of(seen.harness), daemon=heard_of.answered)
    return show(args, Findings(ok=all(each.ok for each in found), findings=found))
