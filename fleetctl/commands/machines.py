"""``fleetctl machines``: the machines that share a store."""

import re

from fleetd.protocol.errors import NotFound
from fleetd.protocol.patterns import MACHINE_ID

from ..args import Namespace, Subparsers, command, group, yes_option
from ..client import Fleet
from ..client.models import ForgottenMachine, MachineForget, MachineLine, Status, SystemStatus
from ..output import console, tables
from ..output.tables import Column
from ..prompts import confirm_or_cancel

COLUMNS = (
    Column("MACHINE", cut="middle", least=12),
    Column("ID", matters=2),
    Column("STATE", styles=console.STATES),
    Column("AGENTS", matters=1),
    Column("HEARTBEAT", times="ago"),
    Column("", matters=1),
)
ALONE = "This store belongs to this machine alone."


def register(subparsers: Subparsers) -> None:
    """Add the group."""
    actions = group(subparsers, "machines", "List the machines that share a store, or forget one.")
    command(
        actions,
        "list",
        _run_list,
        "List the machines that share the store, with their agents at work.",
        "  fleetctl machines list",
    )
    forget = command(
        actions,
        "forget",
        _run_forget,
        "Forget a machine that left or is lost. Its agents are lost, and others can resume their"
        " work.",
        "  fleetctl machines forget build-7\n  fleetctl machines forget 0f3a5c7e9b1d2468 --yes",
        details="A machine that is at work is refused. One that returns is listed again with its"
        " next heartbeat.",
    )
    forget.add_argument(
        "machine", metavar="MACHINE", completes="machine.away", help="its name or its id"
    )
    yes_option(forget)


def _run_list(args: Namespace) -> int:
    with Fleet() as client:
        status = client.call(SystemStatus())
    return console.show(args, status.machines, lambda _: _show(status))


def _show(status: Status) -> None:
    if not status.machines:
        console.line(ALONE)
        return
    rows = [
        (
            each.name,
            each.machine_id,
            each.status,
            str(each.agents),
            each.heard_at,
            "this one" if each.machine_id == status.machine else "",
        )
        for each in status.machines
    ]
    tables.table(COLUMNS, rows)


def _run_forget(args: Namespace) -> int:
    with Fleet() as client:
        machine_id, what = _find(client.call(SystemStatus()).machines, args.machine)
        if not args.yes:
            confirm_or_cancel(f"Forget {what}?", "Nothing was forgotten.")
        forgotten = client.call(MachineForget(machine_id=machine_id))
    return console.show(args, forgotten, _print_forgotten)


def _find(machines: list[MachineLine], wanted: str) -> tuple[str, str]:
    """Return the id of the named machine, and its description; raises NotFound."""
    for each in machines:
        if wanted in (each.machine_id, each.name):
            agents = console.plural(each.agents, "agent")
            return each.machine_id, f"{each.name} ({each.status}, {agents} at work)"
    if machines and re.fullmatch(MACHINE_ID, wanted):  # one that was lost long ago is not listed
        return wanted, f"machine {wanted}"
    hint = "fleetctl machines list shows names and ids." if machines else ALONE
    raise NotFound(f"Machine not found: {wanted}", hint=hint, noun="machine", id=wanted)


def _print_forgotten(forgotten: ForgottenMachine) -> None:
    console.line(f"Forgotten: {forgotten.name}")
    if forgotten.lost_agents:
        lost = console.plural(len(forgotten.lost_agents), "agent")
        console.line(f"{lost} lost: {', '.join(forgotten.lost_agents)}")
