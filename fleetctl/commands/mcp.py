"""``fleetctl mcp``: the server that agents work with their fleet through, and who starts it."""

import importlib.util
import os
import re
import sys
from argparse import Namespace

from fleetd.wire.errors import InvalidState
from fleetd.wire.words import AGENT_ID

from ..options import Parser, Subparsers, UsageError

EXAMPLES = """\
examples:
  fleetctl mcp install --all    # once: agent CLIs start the server by themselves
  fleetctl mcp status
  fleetctl mcp --agent alice    # what an agent CLI runs; speaks on stdin and stdout
"""


def register(subparsers: Subparsers) -> None:
    """Add the command, and the group below it."""
    summary = (
        "Let agents work with their fleet by themselves: a server of the Model Context Protocol"
        " on stdin and stdout. Agent CLIs start it; install tells them to."
    )
    parser: Parser = subparsers.add_parser(
        "mcp", help=summary, description=summary, epilog=EXAMPLES
    )
    parser.add_argument(
        "--agent",
        metavar="ID",
        completes="agent",
        help="who the agent is (default: FLEET_AGENT_ID, else the one in whose CLI this runs)",
    )
    parser.set_defaults(run=run, parser=parser, json=False)


def run(args: Namespace) -> int:
    """Serve until stdin is closed."""
    agent_id = _agent(args.agent)
    if sys.stdin.isatty():
        raise UsageError(
            "This is a server that agent CLIs start; nobody types here. To tell them to: "
            "fleetctl mcp install --all"
        )
    if importlib.util.find_spec("mcp") is None:
        # Imported here: nobody else needs it.
        from ..mcp_settings.extra import install_command

        raise InvalidState(
            "fleetctl mcp needs the package mcp, which is not installed.",
            hint=f"Install it with: {install_command()}",
        )
    # Imported here: it takes half a second, and no other command needs it.
    from ..mcp_server.serving import serve

    return serve(agent_id)


def _agent(given: str | None) -> str | None:
    """Return who the agent is; raises UsageError for what is no name."""
    if given is not None and not re.match(AGENT_ID, given):
        raise UsageError(
            f"--agent: {given!a} is no name of an agent: 1 to 64 letters, digits or . _ : @ -"
        )
    inherited = os.environ.get("FLEET_AGENT_ID", "")
    return given or (inherited if re.match(AGENT_ID, inherited) else None)
