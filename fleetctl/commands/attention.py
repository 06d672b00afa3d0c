"""``fleetctl attention``: the agents that need a person, and how to get to them."""

import sys
from typing import Any, NamedTuple

from fleetd.protocol.errors import InvalidState

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import (
    AgentState,
    AttentionList,
    AttentionPage,
    BudgetList,
    EventList,
    Status,
    SystemStatus,
)
from ..context import print_link_state
from ..launch.commands import into, reopening
from ..output import console
from ..output.views.agent_state import doing_of, project_of, state_of
from .status import NEW_AGENT

EXAMPLES = """\
  fleetctl attention
  fleetctl attention --follow
  fleetctl attention --follow --json"""
CHANGED = "agent_needs"
# What was printed about an agent: what it needed, and since when.
_PrintedStates = dict[str, tuple[str, str]]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "attention",
        run,
        "Show the agents that need you, and the command that continues each session.",
        EXAMPLES,
        details="Answer in the terminal of the session. If it is closed, this command continues"
        " it. Of a lost agent you see the command that takes over its work.",
        follows=True,
    )
    parser.flag(
        "--follow",
        help="also print each agent that begins to need you, until Ctrl-C; with --json, one"
        " document per line",
    )


def run(args: Namespace) -> int:
    """Print the agents that need a person; with ``--follow``, also those that do so later."""
    if args.follow:
        try:
            return _follow(args)
        except KeyboardInterrupt:
            # Ctrl-C ends following normally; nothing failed.
            return 0
    with Fleet() as client:
        page = client.call(AttentionList(waiting=True))
        around = None if args.json else _around(client, page)
        passed = _over_budget(client)
    if args.json:
        everything: Any = page  # which is plain data
        console.print_json({**everything, "over_budget": [each.fields for each in passed]})
        return 0
    _show(page, around, [each.line for each in passed])
    return 0


class _Passed(NamedTuple):
    """A mission that took more than its budget: as a line, and as fields."""

    line: str
    fields: dict[str, Any]


def _over_budget(client: Fleet) -> list[_Passed]:
    """Return each open mission that took more than its budget, or may have."""
    from fleetd.protocol.errors import MethodNotFound

    try:
        budgets = client.call(BudgetList()).budgets
    except MethodNotFound:  # a daemon from before an upgrade
        return []
    if not budgets:
        return []
    from .usage import budget_text, over_budget, taken_text

    prices = None
    if any(each.usd_cents is not None for each in budgets):
        # Imported here: it takes half a second.
        from ..output.prices import load_prices

        prices = load_prices()
    found = []
    for each in budgets:
        state = "over budget" if over_budget(each, prices) else None
        if each.usd_cents is not None and prices is None:
            state = "budget"
        if state:
            summary = f"{budget_text(each)}, taken {taken_text(each, prices)}"
            line = f"{each.mission_id}  {state}: {summary}  {each.title}"
            fields = {
                "mission_id": each.mission_id,
                "title": each.title,
                "tokens": each.tokens,
                "usd_cents": each.usd_cents,
                "taken": taken_text(each, prices),
                "known": state != "budget",
            }
            found.append(_Passed(line, fields))
    return found


def _follow(args: Namespace) -> int:
    """Print each state once; continues at its position after a restart of the daemon."""
    from ..client import StoreReplaced

    with Fleet() as client:
        # Read the log's position before the first output, so that later changes follow it.
        page = client.call(EventList(types=[CHANGED], newest=True, limit=1))
        since: int | None = page.events[0].seq if page.events else 0
        epoch: str | None = page.epoch
        printed = _print_new(args, client, {})
        while True:
            try:
                following = client.events(
                    since=since, epoch=epoch, types=[CHANGED], on_link=print_link_state
                )
                for event in following:
                    since = event.seq
                    printed = _print_new(args, client, printed)
            except StoreReplaced as error:
                console.warn(f"{error.message} Following from the end of the new log.")
                since, epoch = None, None
                printed = _print_new(args, client, printed)


def _print_new(args: Namespace, client: Fleet, printed: _PrintedStates) -> _PrintedStates:
    """Print agents that newly need a person; return the states that were printed so far."""
    page = client.call(AttentionList(waiting=True))
    around = None if args.json else _around(client, page)
    for agent in page.agents:
        if printed.get(agent.agent_id) == _key(agent):
            continue
        if args.json:
            print(console.to_json(agent, indent=0))
        else:
            _show_one(agent, around)
    sys.stdout.flush()
    return {agent.agent_id: _key(agent) for agent in page.agents}


def _key(agent: AgentState) -> tuple[str, str]:
    """Return the identity of an agent's state."""
    return agent.needs, agent.since


def _around(client: Fleet, page: AttentionPage) -> Status | None:
    """Return the daemon's status, if an agent is lost or on another machine; else None."""
    if not any(agent.machine or agent.needs == "lost" for agent in page.agents):
        return None
    return client.call(SystemStatus())


def _show(page: AttentionPage, around: Status | None, passed: list[str]) -> None:
    if not page.agents:
        console.line("No agent needs you.")
    for agent in page.agents:
        _show_one(agent, around)
    if page.more:
        console.line(f"and {page.more} more")
    for each in passed:
        console.line(each)


def _show_one(agent: AgentState, around: Status | None) -> None:
    """Print an agent: a line with its state and place, its full text, and how to get to it."""
    parts = (agent.agent_id, state_of(agent), console.ago(agent.since), project_of(agent))
    console.line("  ".join(filter(None, parts)))
    if activity := doing_of(agent):
        console.flow("  ", activity)
    if commands := _taking_over(agent, around):
        for each in commands:
            console.whole(f"  {each}")
        console.line(f"  {NEW_AGENT}")
        return
    there = way_to(agent)
    machine = _machine_of(agent, around)
    if machine:
        there = f"on {machine}: {there}" if there else f"on {machine}"
    if there:
        console.whole(f"  {there}")


def _machine_of(agent: AgentState, around: Status | None) -> str | None:
    """Return the name of an agent's machine, if it is another one."""
    machines = around.machines if around is not None else []
    found = (each for each in machines if each.machine_id == agent.machine)
    return next((each.name for each in found if around and each.machine_id != around.machine), None)


def _taking_over(agent: AgentState, around: Status | None) -> list[str]:
    """Return the commands that take over the work of a lost agent, none if no work waits."""
    if agent.needs != "lost" or around is None:
        return []
    waiting = (each for each in around.candidates if agent.agent_id in each.lost_agents)
    candidate = next((each for each in waiting if each.checkpoint_id), None)
    commands = console.resume_commands(candidate) if candidate else []
    return [each for each in commands if each.endswith(f"--take-over-from {agent.agent_id}")]


def way_to(agent: AgentState) -> str:
    """Return the command that continues the session of an agent where it works."""
    try:
        return reopening(agent.harness, agent.session_id, agent.cwd).shell_line
    except InvalidState:
        return into(agent.cwd) if agent.cwd else ""
