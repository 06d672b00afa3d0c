"""``fleetctl attention``: the agents that need a person, and how to get to them."""

import shlex
import sys
from typing import TYPE_CHECKING

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import AgentState, AttentionList, AttentionPage, EventList, SystemStatus
from ..integrations.registry import HARNESSES
from ..output import console
from ..output.views.agent_state import doing_of, project_of, state_of

if TYPE_CHECKING:
    from ..client.subscription import Link

EXAMPLES = """\
  fleetctl attention
  fleetctl attention --follow
  fleetctl attention --follow --json"""
CHANGED = "agent_needs"
# What was told of an agent: what it needed, and since when.
_Told = dict[str, tuple[str, str]]


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
    if args.follow:
        try:
            return _follow(args)
        except KeyboardInterrupt:
            # Ctrl-C is how one stops following; nothing failed.
            return 0
    with Fleet() as client:
        page = client.call(AttentionList(waiting=True))
        elsewhere = _elsewhere(client, page)
    return console.show(args, page, lambda page: _show(page, elsewhere))


def _follow(args: Namespace) -> int:
    """Print each state once; goes on where it was when the daemon was restarted."""
    from ..client import StoreReplaced

    with Fleet() as client:
        # Where the log is before anything is told: what changes meanwhile is told behind it.
        page = client.call(EventList(types=[CHANGED], newest=True, limit=1))
        since: int | None = page.events[0].seq if page.events else 0
        epoch: str | None = page.epoch
        told = _tell_new(args, client, {})
        while True:
            try:
                following = client.events(
                    since=since, epoch=epoch, types=[CHANGED], on_link=_tell_link
                )
                for event in following:
                    since = event.seq
                    told = _tell_new(args, client, told)
            except StoreReplaced as error:
                console.warn(f"{error.message} Following from the end of the new log.")
                since, epoch = None, None
                told = _tell_new(args, client, told)


def _tell_link(link: "Link") -> None:
    if link.state == "away":
        console.warn("The connection to fleetd ended; waiting until it is back.")


def _tell_new(args: Namespace, client: Fleet, told: _Told) -> _Told:
    """Print who needs a person now and was not told; return what is told by then."""
    page = client.call(AttentionList(waiting=True))
    elsewhere = _elsewhere(client, page)
    for agent in page.agents:
        if told.get(agent.agent_id) == _key(agent):
            continue
        if args.json:
            print(console.to_json(agent, indent=0))
        else:
            _show_one(agent, elsewhere)
    sys.stdout.flush()
    return {agent.agent_id: _key(agent) for agent in page.agents}


def _key(agent: AgentState) -> tuple[str, str]:
    """Return what makes one state of an agent another one."""
    return agent.needs, agent.since


def _elsewhere(client: Fleet, page: AttentionPage) -> dict[str, str]:
    """Return the names of other machines that agents are on, by id."""
    if not any(agent.machine for agent in page.agents):
        return {}
    status = client.call(SystemStatus())
    return {
        each.machine_id: each.name for each in status.machines if each.machine_id != status.machine
    }


def _show(page: AttentionPage, elsewhere: dict[str, str]) -> None:
    if not page.agents:
        console.line("No agent needs you.")
    for agent in page.agents:
        _show_one(agent, elsewhere)


def _show_one(agent: AgentState, elsewhere: dict[str, str]) -> None:
    state = f"{agent.agent_id}  {state_of(agent)}  {console.ago(agent.since)}  "
    console.headed(state + (f"{project_of(agent)}  " if project_of(agent) else ""), doing_of(agent))
    there = way_to(agent)
    machine = elsewhere.get(agent.machine or "")
    if machine:
        there = f"on {machine}: {there}" if there else f"on {machine}"
    if there:
        console.line(f"  {there}")


def way_to(agent: AgentState) -> str:
    """Return the command that opens the session of an agent where it works."""
    harness = HARNESSES.get(agent.harness or "")
    parts = [f"cd {shlex.quote(agent.cwd)}"] if agent.cwd else []
    if harness and harness.resume and agent.session_id:
        parts.append(harness.resume.format(shlex.quote(agent.session_id)))
    return " && ".join(parts)
