"""``fleetctl attention``: the agents that need a person, and how to get to them."""

import shlex
import sys

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import AgentState, AttentionList, AttentionPage
from ..integrations.registry import HARNESSES
from ..output import console
from ..output.views.agent_state import doing_of, project_of, state_of

EXAMPLES = """\
  fleetctl attention
  fleetctl attention --follow
  fleetctl attention --follow --json"""


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "attention",
        run,
        "Show the agents that need you, and the command that opens each session.",
        EXAMPLES,
    )
    parser.flag("--follow", help="also print each agent that begins to need you, until Ctrl-C")


def run(args: Namespace) -> int:
    """Print who needs a person; then, if asked for, whoever begins to."""
    with Fleet() as client:
        page = client.call(AttentionList(waiting=True))
    if not args.follow:
        return console.show(args, page, _show)
    for agent in page.agents:
        _tell(args, agent)
    try:
        return _follow(args, {each.agent_id: _key(each) for each in page.agents})
    except KeyboardInterrupt:
        return 0


def _follow(args: Namespace, told: dict[str, tuple[str, str]]) -> int:
    with Fleet() as client:
        for event in client.events(types=["agent_needs"]):
            found = client.call(AttentionList(agent_id=event.agent_id, waiting=True)).agents
            for agent in found:
                if told.get(agent.agent_id) != _key(agent):
                    told[agent.agent_id] = _key(agent)
                    _tell(args, agent)
            if not found:
                told.pop(event.agent_id or "", None)
    return 0


def _key(agent: AgentState) -> tuple[str, str]:
    """Return what makes one state of an agent another one."""
    return agent.needs, agent.since


def _tell(args: Namespace, agent: AgentState) -> None:
    if args.json:
        print(console.to_json(agent, indent=0))
    else:
        _show_one(agent)
    sys.stdout.flush()


def _show(page: AttentionPage) -> None:
    if not page.agents:
        console.line("No agent needs you.")
    for agent in page.agents:
        _show_one(agent)


def _show_one(agent: AgentState) -> None:
    state = f"{agent.agent_id}  {state_of(agent)}  {console.ago(agent.since)}  "
    console.headed(state + (f"{project_of(agent)}  " if project_of(agent) else ""), doing_of(agent))
    if there := way_to(agent):
        console.line(f"  {there}")


def way_to(agent: AgentState) -> str:
    """Return the command that opens the session of an agent where it works."""
    harness = HARNESSES.get(agent.harness or "")
    parts = [f"cd {shlex.quote(agent.cwd)}"] if agent.cwd else []
    if harness and harness.resume and agent.session_id:
        parts.append(harness.resume.format(shlex.quote(agent.session_id)))
    return " && ".join(parts)
