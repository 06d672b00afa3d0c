"""``fleetctl hooks``: install fleetd's hooks in agent CLIs, remove them, show their state."""

from argparse import BooleanOptionalAction

from ..args import Namespace, Subparsers, group
from ..client.models import Finding, Findings
from ..integrations import doctor, launcher, status
from ..integrations.apply import (
    Operation,
    add_changing_command,
    add_settings_command,
    apply,
    chosen_harnesses,
    chosen_here,
    project,
)
from ..integrations.hook_command import AUTO, ENFORCE, this_installation
from ..integrations.hook_plan import PlannedChange, plan_install, plan_uninstall
from ..integrations.live import Live
from ..integrations.registry import HARNESSES
from ..integrations.status import HooksState, state
from ..output import console, tables
from ..output.tables import Column

HINT = "To install hooks nevertheless, name an agent CLI: fleetctl hooks install claude"


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(
        subparsers,
        "hooks",
        "Connect agent CLIs to fleetd: " + ", ".join(HARNESSES) + ".",
    )
    summary = "Add fleetd's hooks to the settings of agent CLIs. Other settings stay unchanged."
    install = add_changing_command(
        actions,
        "install",
        _run_install,
        summary,
        "  fleetctl hooks install --all\n"
        "  fleetctl hooks install claude codex --dry-run\n"
        "  fleetctl hooks install claude --enforce-locks --auto-locks",
    )
    install.add_argument(
        "--enforce-locks",
        action=BooleanOptionalAction,
        default=None,
        help="deny edits of files that another agent has locked (default: unchanged, at first no)",
    )
    install.add_argument(
        "--auto-locks",
        action=BooleanOptionalAction,
        default=None,
        help="lock a file while an agent edits it, until its turn ends (default: unchanged, at"
        " first no)",
    )
    summary = (
        "Remove fleetd's hooks from the settings of agent CLIs. Other settings stay unchanged."
    )
    example = "  fleetctl hooks uninstall --all\n  fleetctl hooks uninstall gemini"
    add_changing_command(actions, "uninstall", _run_uninstall, summary, example)
    summary = "Show the installed hooks, and the last event of each agent CLI."
    add_settings_command(actions, "status", _run_status, summary, "  fleetctl hooks status")
    summary = (
        "Check the installed hooks, and run their command once. Exit status 1 when a problem "
        "is found."
    )
    example = (
        "  fleetctl hooks doctor\n  fleetctl hooks doctor codex\n  fleetctl hooks doctor --live"
    )
    checking = add_settings_command(actions, "doctor", _run_doctor, summary, example)
    checking.flag(
        "--live",
        help="also check what agent CLIs sent lately: the last event of each kind, silent "
        "sessions, and events that fleetd does not know",
    )


def _run_install(args: Namespace) -> int:
    installation, place = this_installation(), project(args)
    choices = {ENFORCE: args.enforce_locks, AUTO: args.auto_locks}
    operation = Operation(
        lambda each: plan_install(each, place, installation, choices),
        PlannedChange.install,
        heading="Hooks to install",
        done="installed in",
        nothing="already installed",
        whole="plugin",
    )
    return apply(args, chosen_here(args, HINT), operation)


def _run_uninstall(args: Namespace) -> int:
    place = project(args)
    operation = Operation(
        lambda each: plan_uninstall(each, place),
        PlannedChange.uninstall,
        heading="Hooks to remove",
        done="taken out of",
        nothing="not installed",
        whole="plugin",
    )
    failed = apply(args, chosen_harnesses(args), operation)
    if args.all and not (failed or place or args.dry_run):
        launcher.remove()
    return failed


def _run_status(args: Namespace) -> int:
    states = _states(args)
    hook_status = status.ask()
    if args.json:
        console.print_json(
            {
                "harnesses": [
                    {"hooks": vars(seen), "heard": hook_status.of(seen.harness)} for seen in states
                ],
                "daemon": hook_status.answered,
                "spool": hook_status.spool,
            }
        )
        return 0
    rows = [(*_summary_cells(seen), *hook_status.row(seen.harness)) for seen in states]
    headers = (
        Column("HARNESS"),
        Column("PROGRAM", matters=8, styles={"no": "dim"}),
        Column("HOOKS", styles={"yes": "green", "no": "dim", "?": "red"}),
        *status.COLUMNS,
    )
    tables.table(headers, rows)
    for seen in states:
        _details(seen)
    hook_status.print_notes()
    if console.human_readable() and all(seen.installed == "no" for seen in states):
        print()
        console.flow(
            "", "No hooks are installed. To install them for all agent CLIs on this machine:"
        )
        console.line("  fleetctl hooks install --all")
    return 0


def _states(args: Namespace) -> list[HooksState]:
    installation = this_installation()
    return [state(each, project(args), installation) for each in chosen_harnesses(args)]


def _summary_cells(seen: HooksState) -> tuple[str, ...]:
    old = seen.installed != "no" and (seen.updates or not seen.current)
    hooks = f"{seen.installed}, old" if old else seen.installed
    return seen.harness, "yes" if seen.executable else "no", "?" if seen.problem else hooks


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
            ("Automatic locks", "on" if seen.auto_locks else None),
            ("Command", seen.commands[0] if seen.commands else None),
            ("Other commands", len(seen.commands) - 1 if len(seen.commands) > 1 else None),
        ]
    )


def _run_doctor(args: Namespace) -> int:
    states = _states(args)
    hook_status = status.ask()
    live = _live(args, states, hook_status) if args.live else []
    examined = [seen for seen in states if seen.installed != "no" or seen.harness in args.harness]
    found = []
    if not examined and not live:
        detail = "no hooks are installed; run: fleetctl hooks install --all"
        found.append(Finding(check="installed", ok=False, detail=detail))
    for seen in examined:
        harness = HARNESSES[seen.harness]
        harness_status = hook_status.of(seen.harness)
        found += doctor.findings(
            harness, seen, harness_status, daemon=hook_status.answered, project=project(args)
        )
    for each in live:
        found += each.findings()
    # Without a daemon, nobody knows which events it received.
    spooled = bool(found) and all(each.ok for each in found) and not args.live
    found.insert(0, hook_status.finding(spooled=spooled))
    findings = Findings(ok=all(each.ok for each in found), findings=found)
    if not args.live:
        return console.findings(args, findings)
    if args.json:
        documents = [each.document() for each in live]
        console.print_json({"ok": findings.ok, "findings": findings.findings, "live": documents})
        return 0 if findings.ok else 1
    for each in live:
        each.show()
    console.line()
    return console.findings(args, findings)


def _live(
    args: Namespace, states: list[HooksState], hook_status: status.DaemonHookStatus
) -> list[Live]:
    """Return the named agent CLIs, or all, whose hooks are installed or whose events came."""
    installation, place = this_installation(), project(args)
    known = {seen.harness: seen for seen in states}
    names = [
        seen.harness for seen in states if seen.installed != "no" or seen.harness in args.harness
    ]
    names += [
        each.harness
        for each in hook_status.harnesses
        if each.harness not in names and (each.harness in known or not args.harness)
    ]
    return [
        Live(name, known.get(name), hook_status.of(name), installation, place) for name in names
    ]
