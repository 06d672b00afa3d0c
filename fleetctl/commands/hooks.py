"""``fleetctl hooks``: put fleetd's hooks into agent CLIs, take them out, see how they do."""

from argparse import BooleanOptionalAction, Namespace

from fleetd.protocol.errors import NotFound

from ..args import Subparsers, group
from ..client.models import Finding, Findings
from ..integrations import doctor, status
from ..integrations.apply import (
    Operation,
    add_changing_command,
    add_settings_command,
    apply,
    chosen_harnesses,
    project,
)
from ..integrations.hook_command import this_installation
from ..integrations.hook_plan import PlannedChange, plan_install, plan_uninstall
from ..integrations.registry import HARNESSES
from ..integrations.status import HooksState, state
from ..output import console, tables
from ..output.tables import Column
from ..output.views.findings import show


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers,
        "hooks",
        "Let agent CLIs tell fleetd what they do: " + ", ".join(HARNESSES) + ".",
    )
    summary = "Add fleetd's hooks to the settings of agent CLIs; what is there stays as it is."
    install = add_changing_command(
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
    add_changing_command(actions, "uninstall", run_uninstall, summary, example)
    summary = "Show where hooks are installed and what was heard of them."
    add_settings_command(actions, "status", run_status, summary, "  fleetctl hooks status")
    summary = (
        "Look for hooks that cannot work, and run the installed command once; exit status 1 when "
        "something is wrong."
    )
    example = "  fleetctl hooks doctor\n  fleetctl hooks doctor codex"
    add_settings_command(actions, "doctor", run_doctor, summary, example)


def run_install(args: Namespace) -> int:
    """Show what would be added, ask, and add it."""
    installation, place = this_installation(), project(args)
    harnesses = [each for each in chosen_harnesses(args) if each.is_here() or not args.all]
    if not harnesses:
        raise NotFound(
            f"None of these was found on this machine: {', '.join(HARNESSES)}.",
            hint="Name one to install its hooks all the same: fleetctl hooks install claude",
        )
    operation = Operation(
        lambda each: plan_install(each, place, installation, enforce=args.enforce_locks),
        PlannedChange.install,
        done="installed in",
        nothing="already installed",
    )
    return apply(args, harnesses, operation)


def run_uninstall(args: Namespace) -> int:
    """Show what would be taken out, ask, and take it out."""
    place = project(args)
    operation = Operation(
        lambda each: plan_uninstall(each, place),
        PlannedChange.uninstall,
        done="taken out of",
        nothing="not installed",
    )
    return apply(args, chosen_harnesses(args), operation)


def run_status(args: Namespace) -> int:
    """Print how every harness stands, and what the daemon heard of it."""
    states = _states(args)
    heard_of = status.ask()
    if args.json:
        console.print_json(
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
        *status.COLUMNS,
    )
    tables.table(headers, rows)
    for seen in states:
        _details(seen)
    heard_of.tell()
    if console.humane() and all(seen.installed == "no" for seen in states):
        print()
        console.flow("", "No hooks are installed. To install those of what is here:")
        console.line("  fleetctl hooks install --all")
    return 0


def _states(args: Namespace) -> list[HooksState]:
    installation = this_installation()
    return [state(each, project(args), installation) for each in chosen_harnesses(args)]


def _standing(seen: HooksState) -> tuple[str, ...]:
    old = seen.installed != "no" and (seen.updates or not seen.current)
    hooks = f"{seen.installed}, old" if old else seen.installed
    return seen.harness, "yes" if seen.here else "no", "?" if seen.problem else hooks


def _details(seen: HooksState) -> None:
    if seen.installed == "no":
        return
    console.heading(seen.harness)
    console.fields(
        [
            ("File", seen.file),
            ("Problem", seen.problem),
            ("Events", ", ".join(seen.events)),
            ("Missing", ", ".join(seen.missing)),
            ("Updates", ", ".join(seen.updates)),
            ("Lock enforcement", "on" if seen.enforce_locks else None),
            ("Command", seen.commands[0] if seen.commands else None),
            ("Other commands", len(seen.commands) - 1 if len(seen.commands) > 1 else None),
        ]
    )


def run_doctor(args: Namespace) -> int:
    """Examine the hooks that are installed, or those of the harnesses named."""
    states = _states(args)
    heard_of = status.ask()
    examined = [seen for seen in states if seen.installed != "no" or seen.harness in args.harness]
    found = [heard_of.finding()]
    if not examined:
        told = "no hooks are installed; run: fleetctl hooks install --all"
        found.append(Finding(check="installed", ok=False, detail=told))
    for seen in examined:
        harness = HARNESSES[seen.harness]
        heard_of_it = heard_of.of(seen.harness)
        found += doctor.findings(
            harness, seen, heard_of_it, daemon=heard_of.answered, project=project(args)
        )
    return show(args, Findings(ok=all(each.ok for each in found), findings=found))
