"""``fleetctl mcp``: the MCP server for agents, and its installation in agent CLIs."""

import re
import sys

from fleetd.protocol.errors import InvalidState
from fleetd.protocol.patterns import AGENT_ID

from ..args import CommandParser, Namespace, Subparsers, UsageError
from ..context import this_agent
from ..integrations import mcp_extra
from ..integrations.apply import (
    Operation,
    add_changing_command,
    add_settings_command,
    apply,
    chosen_harnesses,
    chosen_here,
    project,
)
from ..integrations.hook_plan import PlannedChange
from ..integrations.mcp import McpStatus, look, plan_install, plan_uninstall, this_command
from ..integrations.registry import HARNESSES
from ..output import console, tables
from ..output.tables import Column

EXAMPLES = """\
examples:
  fleetctl mcp install --all    # once; agent CLIs then start the server
  fleetctl mcp status
  fleetctl mcp --agent ID       # the command that an agent CLI runs
"""
MISSING = "The server needs the package mcp, which is not installed."
HINT = "To install the server nevertheless, name an agent CLI: fleetctl mcp install claude"


def register(subparsers: Subparsers) -> None:
    """Add the command, and the group below it."""
    summary = (
        "Run the MCP server, which gives an agent tools to report, lock files and send messages."
        " Agent CLIs start it after fleetctl mcp install."
    )
    parser: CommandParser = subparsers.add_parser(
        "mcp", help=summary, description=summary, epilog=EXAMPLES
    )
    parser.add_argument(
        "--agent",
        completes="agent",
        help="the agent (default: FLEET_AGENT_ID, else the agent of the CLI that runs this)",
    )
    parser.set_defaults(run=run, parser=parser, json=False)
    # Without an action, the command runs the server.
    actions = parser.optional_commands("action")
    summary = "Add the MCP server to the settings of agent CLIs. Other settings stay unchanged."
    example = "  fleetctl mcp install --all\n  fleetctl mcp install claude codex --dry-run"
    add_changing_command(actions, "install", _run_install, summary, example)
    summary = (
        "Remove the MCP server from the settings of agent CLIs. Other settings stay unchanged."
    )
    example = "  fleetctl mcp uninstall --all\n  fleetctl mcp uninstall gemini"
    add_changing_command(actions, "uninstall", _run_uninstall, summary, example)
    summary = "Show the agent CLIs that start the MCP server."
    add_settings_command(actions, "status", _run_status, summary, "  fleetctl mcp status")


def run(args: Namespace) -> int:
    """Serve until stdin is closed."""
    agent_id = _agent(args.agent)
    if sys.stdin.isatty():
        raise UsageError(
            "This server reads requests of an agent CLI, not of a terminal. To have agent CLIs "
            "start it: fleetctl mcp install --all"
        )
    if not mcp_extra.is_installed():
        raise InvalidState(MISSING, hint=mcp_extra.hint())
    # Imported here: it takes half a second, and no other command needs it.
    from ..mcp_server.server import serve

    return serve(agent_id)


def _agent(given: str | None) -> str | None:
    """Return the agent's name; raises UsageError for a malformed one."""
    if given is not None and not re.match(AGENT_ID, given):
        raise UsageError(
            f"argument --agent: {given!a} is not a name: use 1 to 64 of a-z, A-Z, 0-9, . _ : @ -"
        )
    return given or this_agent()


def _run_install(args: Namespace) -> int:
    # An agent CLI would report a server that cannot start each time that the CLI itself starts.
    if not mcp_extra.is_installed() and not args.dry_run:
        raise InvalidState(f"{MISSING} Nothing was changed.", hint=mcp_extra.hint())
    command, place = this_command(), project(args)
    operation = Operation(
        lambda each: plan_install(each, place, command),
        PlannedChange.install,
        heading="Servers to add",
        done="server added to",
        nothing="already installed",
        whole="server",
    )
    status = apply(args, chosen_here(args, HINT), operation)
    _warn_of_missing()
    return status


def _run_uninstall(args: Namespace) -> int:
    place = project(args)
    operation = Operation(
        lambda each: plan_uninstall(each, place),
        PlannedChange.uninstall,
        heading="Servers to remove",
        done="server taken out of",
        nothing="not installed",
        whole="server",
    )
    return apply(args, chosen_harnesses(args), operation)


def _run_status(args: Namespace) -> int:
    command, place = this_command(), project(args)
    states = [look(each, place, command) for each in chosen_harnesses(args)]
    if args.json:
        document = {
            "package": mcp_extra.is_installed(),
            "harnesses": [vars(each) for each in states],
        }
        console.print_json(document)
        return 0
    columns = (
        Column("HARNESS"),
        Column("PROGRAM", matters=8, styles={"no": "dim"}),
        Column("SERVER", styles={"yes": "green", "no": "dim", "?": "red"}),
        Column("FILE", cut="middle", least=20),
    )
    tables.table(columns, [_row(seen) for seen in states])
    for seen in states:
        if seen.problem:
            console.warn(f"{seen.harness}: {seen.problem}")
    _warn_of_missing()
    return 0


def _warn_of_missing() -> None:
    if not mcp_extra.is_installed():
        console.warn(f"{MISSING} {mcp_extra.hint()}")


def _row(seen: McpStatus) -> tuple[str, ...]:
    server = {"yes": "yes" if seen.current else "yes, old", "other": "no, another's"}
    shown = server.get(seen.installed, "?" if seen.problem else "no")
    return seen.harness, "yes" if HARNESSES[seen.harness].executable() else "no", shown, seen.file
