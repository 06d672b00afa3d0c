"""``fleetctl agent``: register agents, list those at work, and report what one is doing."""

from typing import Any, get_args

from fleetd.protocol.errors import InvalidParams, InvalidState
from fleetd.protocol.patterns import AgentStatus, Role

from ..args import (
    CommandParser,
    Namespace,
    Run,
    Subparsers,
    UsageError,
    command,
    group,
    threshold_ms,
    whole_number,
)
from ..client import Fleet, call
from ..client.models import (
    Agent,
    AgentDeregister,
    AgentGet,
    AgentHeartbeat,
    AgentList,
    AgentNote,
    AgentRegister,
    AgentState,
    AttentionList,
    RecoveryCandidate,
    RecoveryRestore,
    RestoreResult,
)
from ..client.pagination import all_pages
from ..context import cwd, machine_name, machine_names, prefix_errors, select_mission
from ..output import console, tables
from ..output.tables import Column
from ..output.views.agent_state import runs_for, standing_of, work_of
from ..prompts import confirm, interactive
from ._recovery import QUESTION, announcement, candidate_target, show_outcome

START_EXAMPLES = """\
  fleetctl agent start specialist-1
  fleetctl agent start dispatch-1 --role dispatch --auto-resume"""
COLUMNS = (
    Column("ID"),
    Column("ROLE", matters=1),
    Column("STATUS", matters=5, styles=console.STATES),
    Column("HARNESS", matters=2),
    Column("MISSION", matters=3),
    Column("LAST SEEN", matters=4, times="ago"),
)
# Only where several machines share the store.
MACHINE = Column("MACHINE", matters=2, cut="middle", least=8)


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "agent", "Register agents, and list the agents at work.")
    start = _agent_command(
        actions,
        "start",
        _run_start,
        "Register an agent, and offer it a mission that waits for recovery.",
        START_EXAMPLES,
    )
    start.add_argument(
        "--role",
        choices=get_args(Role),
        default="specialist",
        help="dispatch for an agent that coordinates (default: specialist)",
    )
    start.add_argument("--mission", completes="mission", help="the mission of the agent")
    start.add_argument(
        "--pid", type=whole_number(1, 2**31 - 1), metavar="N", help="the process id of the agent"
    )
    start.add_argument(
        "--harness", metavar="NAME", completes="harness", help="the agent CLI, such as claude"
    )
    start.flag("--auto-resume", help="recover the mission without asking, and print the briefing")
    listing = command(actions, "list", _run_list, "List agents.")
    listing.add_argument("--mission", completes="mission", help="only agents of this mission")
    listing.add_argument(
        "--status", choices=get_args(AgentStatus), help="only agents in this state"
    )
    _agent_command(actions, "show", _run_show, "Show an agent.")
    note = _agent_command(
        actions,
        "note",
        _run_note,
        "Record the last action, the next steps and the blockers of an agent.",
        '  fleetctl agent note alice --last-action "Wrote the form" --next-step "Test it"',
    )
    note.add_argument("--last-action", metavar="TEXT", help="the last action")
    note.add_argument(
        "--next-step", action="append", metavar="TEXT", help="a next step; may be repeated"
    )
    note.add_argument(
        "--blocker", action="append", metavar="TEXT", help="a blocker; may be repeated"
    )
    _agent_command(actions, "heartbeat", _run_heartbeat, "Report that an agent is alive.")
    leave = _agent_command(
        actions, "deregister", _run_deregister, "Deregister an agent, and release its locks."
    )
    leave.add_argument("--reason", metavar="TEXT", help="the reason")


def _agent_command(
    actions: Subparsers, name: str, run: Run, summary: str, examples: str = ""
) -> CommandParser:
    parser = command(actions, name, run, summary, examples)
    parser.add_argument("agent_id", completes="agent")
    return parser


def _run_list(args: Namespace) -> int:
    terms: dict[str, Any] = {"mission_id": args.mission, "status": args.status}
    with Fleet() as client:
        agents = all_pages(lambda **more: client.call(AgentList(**terms, **more)).agents)
        known = machine_names(client) if any(each.machine for each in agents) else {}
    columns = (*COLUMNS, MACHINE) if known else COLUMNS
    rows = [
        (
            each.id,
            each.role,
            console.agent_state(each.status, each.needs),
            each.harness or "",
            each.mission_id or "",
            each.last_seen_at,
            machine_name(known, each.machine),
        )[: len(columns)]
        for each in agents
    ]
    return tables.show(args, agents, columns, rows, "No agents found.")


def _run_show(args: Namespace) -> int:
    with Fleet() as client:
        agent = client.call(AgentGet(agent_id=args.agent_id))
        known = machine_names(client) if agent.machine else {}
        listed = [] if args.json else client.call(AttentionList(agent_id=agent.id)).agents
    state = next((each for each in listed if each.agent_id == agent.id), None)
    machine = machine_name(known, agent.machine)
    return console.show(args, agent, lambda _: _show(agent, machine, state))


def _show(agent: Agent, machine: str, state: AgentState | None) -> None:
    console.fields(
        (
            ("Agent", agent.id),
            ("Role", agent.role),
            *standing_of(
                agent.status, agent.needs, agent.needs_text, console.ago(agent.needs_since)
            ),
            ("Harness", agent.harness),
            ("Session", agent.session_id),
            ("Process", agent.pid),
            ("Machine", machine),
            ("Mission", agent.mission_id),
            ("Directory", console.path(agent.cwd or "")),
            *(work_of(state) if state is not None else ()),
            ("Registered", console.ago(agent.registered_at)),
            ("Last seen", console.ago(agent.last_seen_at)),
        )
    )
    if note := agent.note:
        console.fields((("Noted last action", note.last_action),))
        console.bullets("Next steps", note.next_steps)
        console.bullets("Blockers", note.blockers)
    if state is not None:
        console.bullets("Running", runs_for(state))


def _run_note(args: Namespace) -> int:
    if args.last_action is None and args.next_step is None and args.blocker is None:
        raise UsageError("There is nothing to record. Use --last-action, --next-step or --blocker.")
    agent = call(
        AgentNote(
            agent_id=args.agent_id,
            last_action=args.last_action,
            next_steps=args.next_step,
            blockers=args.blocker,
        )
    )
    return console.result(args, agent, f"Noted for {agent.id}.")


def _run_heartbeat(args: Namespace) -> int:
    agent = call(AgentHeartbeat(agent_id=args.agent_id))
    return console.result(args, agent, f"Agent {agent.id} is {agent.status}.")


def _run_deregister(args: Namespace) -> int:
    agent = call(AgentDeregister(agent_id=args.agent_id, reason=args.reason))
    return console.result(args, agent, f"Agent deregistered: {agent.id}")


def _run_start(args: Namespace) -> int:
    with Fleet() as client:
        registration = client.call(
            AgentRegister(
                agent_id=args.agent_id,
                role=args.role,
                harness=args.harness,
                pid=args.pid,
                mission_id=args.mission,
                cwd=cwd(),
                threshold_ms=threshold_ms(),
            )
        )
        agent, waiting = registration.agent, registration.recovery
        if not args.json:
            console.line(f"Agent registered: {agent.id} ({agent.role})")
        if agent.mission_id:
            own = (each for each in waiting.candidates if each.mission_id == agent.mission_id)
            candidate = next((each for each in own if each.checkpoint_id), None)
        else:
            candidate = _waiting_here(client)
        outcome = _recover(client, args, candidate, sure=bool(agent.mission_id))
    if args.json:
        console.print_json({"agent": agent, "recovery": waiting, "restored": outcome})
    return 0


def _waiting_here(client: Fleet) -> RecoveryCandidate | None:
    """Return the recovery that waits in this directory, for an agent without a mission.

    The agent never resumes somebody's mission automatically; see ``_recover``.
    """
    try:
        found = select_mission(client, "recovery", threshold_ms=threshold_ms())
    except (InvalidState, InvalidParams):
        return None
    return next(iter(found.candidates), None)


def _recover(
    client: Fleet, args: Namespace, candidate: RecoveryCandidate | None, *, sure: bool
) -> RestoreResult | None:
    if candidate is None or not ((args.auto_resume and sure) or _confirm_recovery(args, candidate)):
        return None
    request = RecoveryRestore(
        mission_id=candidate.mission_id,
        agent_id=args.agent_id,
        requested_by=args.agent_id,
        # Where other agents work again, they must not notice.
        scope="agent" if candidate.agent_id else "mission",
    )
    with prefix_errors("Failed to restore from checkpoint"):
        outcome = client.call(request)
    if not args.json:
        show_outcome(outcome)
    return outcome


def _confirm_recovery(args: Namespace, candidate: RecoveryCandidate) -> bool:
    """Ask if a person is there; otherwise print what waits and how to restore it."""
    if args.json:
        return False
    later = console.resume_command(candidate, args.agent_id)
    if not interactive():
        console.line(
            f"Mission {candidate.mission_id} ({candidate.mission_title}) waits for recovery. "
            f"Restore it with: {later}"
        )
        return False
    console.lines([*announcement(candidate_target(candidate)), ""])
    if not confirm(QUESTION):
        console.line(f"Not restored. Later: {later}")
        return False
    print()
    return True
