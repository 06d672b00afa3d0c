"""``fleetctl status``: the fleet at a glance."""

from argparse import Namespace

from ..args import Subparsers, command
from ..client import call
from ..client.models import (
    AwayStatus,
    Counts,
    MissionLine,
    Recovery,
    Status,
    SystemStatus,
    Timing,
)
from ..output import console, tables
from ..output.tables import Column

# What a recovery that is not over waits for.
STATES = {
    "pending": "nobody was briefed yet",
    "briefed": "briefed, not at work again yet",
    "unconfirmed": "briefed, and not heard of since",
}


MISSIONS = (
    Column(""),
    Column("", matters=5),
    Column("", matters=3),
    Column("", matters=4),
    Column("", matters=2),
    Column("", matters=1),
    Column("", cut="end", least=18),
)
RECOVERIES = (
    Column(""),
    Column("", matters=3),
    Column("", matters=2, styles=console.STATES),
    Column("", matters=1, cut="middle", least=10),
    Column("", cut="end", least=16),
)
MACHINES = (
    Column("", cut="middle", least=12),
    Column("", matters=3, styles=console.STATES),
    Column("", matters=1),
    Column("", matters=2, times="ago"),
    Column("", matters=1),
)
SPOOLED = "fleetd tries again all the time, and then takes in what waits by itself:"
FIRST = (
    "  To begin:",
    '    fleetctl mission create "Title" --sortie "First piece"',
    "    fleetctl mission start",
)
NEXT = ("  fleetctl mission list shows all there are.",)


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "status",
        run,
        "Missions in progress, missions that wait for recovery, and the daemon's state.",
    )
    parser.flag("-v", "--verbose", help="also how busy the daemon is and was")


def run(args: Namespace) -> int:
    """Ask the daemon and print what it says."""
    status = call(SystemStatus())
    if args.json:
        console.print_json(status)
    else:
        _show(status)
        if args.verbose:
            _show_work(status)
    return 0


def _show(status: Status) -> None:
    if status.store and status.store.away:
        _show_away(status, status.store.away)
    console.line(
        f"fleetd {status.version} (pid {status.pid}), running for {console.span(status.uptime_ms)}"
    )
    if status.store and status.store.lost:
        console.flow("Commits lost: ", status.store.lost, style="red")
    if status.counts is None:
        return
    _show_fleet(status, status.counts)
    _show_store(status, status.counts)


def _show_away(status: Status, away: AwayStatus) -> None:
    """Print since when nothing can be read or stored, why, and what becomes of hooks meanwhile."""
    since = f"{console.span(away.for_ms)} (since {away.since_at})"
    console.flow("Store away: ", f"for {since}: {away.message}", style="red")
    waiting = console.plural(status.spool_files, "payload")
    console.flow("  ", f"{SPOOLED} {waiting} of hooks in the spool.")


def _show_fleet(status: Status, counts: Counts) -> None:
    console.heading("Missions in progress")
    if status.missions:
        tables.table(MISSIONS, map(_mission_row, status.missions), indent="  ")
    else:
        console.line("  none")
        if console.humane():
            console.lines(NEXT if counts.missions else FIRST)
    _show_candidates(status)
    _show_recoveries(status.recoveries)
    _show_machines(status)


def _mission_row(mission: MissionLine) -> tuple[str, ...]:
    return (
        mission.mission_id,
        console.bar(mission.progress_percent),
        f"({mission.completed_sorties}/{mission.total_sorties})",
        console.silence(mission.silence_ms),
        _agents(mission),
        console.plural(mission.locks, "lock"),
        console.titled(mission.title, automatic=mission.automatic),
    )


def _agents(mission: MissionLine) -> str:
    """Return how many agents a mission has, and how many of them wait for a permission."""
    told = console.plural(mission.agents, "agent")
    waiting = mission.needs_permission
    needs = "needs" if waiting == 1 else "need"
    return f"{told}, {waiting} {needs} permission" if waiting else told


def _show_candidates(status: Status) -> None:
    if not status.candidates:
        return
    console.heading("Waiting for recovery")
    for each in status.candidates:
        checkpoint = each.checkpoint_id or "no checkpoint"
        silent = console.silence(each.inactivity_duration_ms)
        head = f"  {each.mission_id}  {silent}  {checkpoint}  "
        console.headed(head, each.mission_title)
        if each.lost_agents:
            console.line(f"    {console.lost_agents(each)}")
        if each.checkpoint_id:
            console.line(f"    {console.resume_command(each)}")


def _show_recoveries(recoveries: list[Recovery]) -> None:
    if not recoveries:
        return
    console.heading("Recoveries under way")
    rows = [
        (each.id, each.mission_id, each.state, each.agent_id or "", STATES.get(each.state, ""))
        for each in recoveries
    ]
    tables.table(RECOVERIES, rows, indent="  ")


def _show_machines(status: Status) -> None:
    """Print who shares the store, if it is one that several machines share."""
    if not status.machines:
        return
    console.heading("Machines")
    rows = [
        (
            each.name,
            each.status,
            console.plural(each.agents, "agent"),
            each.heard_at,
            "this one" if each.machine_id == status.machine else "",
        )
        for each in status.machines
    ]
    tables.table(MACHINES, rows, indent="  ")


def _show_store(status: Status, counts: Counts) -> None:
    console.heading("Store")
    named = (
        (counts.missions, "mission"),
        (counts.sorties, "sortie"),
        (counts.agents, "agent"),
        (counts.locks, "active lock"),
        (counts.messages, "undelivered message"),
        (counts.events, "event"),
        (counts.checkpoints, "checkpoint"),
        (counts.snapshots, "snapshot"),
    )
    console.flow("  ", ", ".join(console.plural(count, noun) for count, noun in named))
    recovered = "recovery" if counts.recoveries == 1 else "recoveries"
    console.line(f"  {counts.recoveries} {recovered} so far")
    console.line(f"  files still to write: {status.backup_backlog}")
    if status.machine and status.store:
        console.flow("  ", f"{status.store.version}: {status.store.where}")
        return
    database, wal = console.size(status.database_bytes), console.size(status.wal_bytes)
    console.line(f"  database {database}, write-ahead log {wal}")


def _show_work(status: Status) -> None:
    """Print what only helps who looks for a bottleneck."""
    writer, clients = status.writer, status.connections
    console.heading("Work since the start")
    console.flow(
        "  ",
        f"connections: {clients.open} of {clients.limit}, {clients.open_max} at most;"
        f" {clients.accepted} accepted, {clients.refused} refused, {clients.cut_off} cut off",
    )
    console.flow("  ", f"writer: {writer.queue} requests wait, {writer.queue_max} at most")
    console.flow(
        "  ",
        f"group commit: {console.plural(writer.batches, 'transaction')} of"
        f" {writer.batch_mean:g} requests, p95 {writer.batch_p95}, at most {writer.batch_max}",
    )
    if status.errors:
        kinds = ", ".join(f"{kind} {count}" for kind, count in status.errors.items())
        console.flow("  ", f"errors answered: {kinds}")
    print()
    rows = [_timing_row("COMMIT to disk", writer.commit)]
    rows += [_timing_row(each.method, each) for each in status.latencies]
    tables.table(("MS", "CALLS", "P50", "P95", "MAX"), rows, indent="  ")


def _timing_row(name: str, timing: Timing) -> tuple[str, ...]:
    spans = (timing.p50_ms, timing.p95_ms, timing.max_ms)
    return (name, str(timing.count), *(f"{span:.2f}" for span in spans))
