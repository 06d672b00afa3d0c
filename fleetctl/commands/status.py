"""``fleetctl status``: the fleet at a glance."""

from __future__ import annotations

from ..args import Namespace, Subparsers, command
from ..client import Fleet
from ..client.models import AttentionList, AttentionPage, Counts, MissionLine, Status, SystemStatus
from ..output import console, tables
from ..output.tables import Column
from ..output.views.agent_state import COLUMNS, row_of

# What an unfinished recovery waits for.
STATES = {
    "pending": "no agent is briefed yet",
    "briefed": "briefed, not active again yet",
    "unconfirmed": "briefed, silent since",
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
MOST_AGENTS, MOST_LOST = 12, 3
# How many missions of single sessions are listed; beyond that, the agents above say enough.
MOST_OF_SESSIONS = 3
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
SPOOLED = "fleetd retries, and then records the waiting payloads by itself."
NEW_AGENT = "NEW: the agent that continues the work; fleetctl agent list shows the agents."
FIRST = (
    "  To begin:",
    '    fleetctl mission create "Title" --sortie "First piece"',
    "    fleetctl mission start",
)
NEXT = ("  fleetctl mission list shows all missions.",)


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers,
        "status",
        run,
        "Show agents, missions in progress, and missions that wait for recovery.",
    )
    parser.flag("-v", "--verbose", help="also show the store and the daemon's load")


def run(args: Namespace) -> int:
    """Read the daemon's state, and print it."""
    with Fleet() as client:
        status = client.call(SystemStatus())
        asked = not args.json and status.counts is not None
        agents = client.call(AttentionList()) if asked else None

    def page(status: Status) -> None:
        _show(status, agents)
        if args.verbose and status.counts is not None:
            _show_store(status, status.counts)
        if args.verbose:
            _show_work(status)

    return console.show(args, status, page)


def _show(status: Status, agents: AttentionPage | None) -> None:
    store = status.store
    if store and store.away:
        since = f"{console.span(store.away.for_ms)} (since {store.away.since_at})"
        console.flow("Store away: ", f"for {since}: {store.away.message}", style="red")
        waiting = console.plural(status.spool_files, "payload")
        console.flow("  ", f"{waiting} of hooks in the spool. {SPOOLED}")
    console.line(
        f"fleetd {status.version} (pid {status.pid}), running for {console.span(status.uptime_ms)}"
    )
    if store and store.lost:
        console.flow("Commits lost: ", store.lost, style="red")
    if status.counts is not None and agents is not None:
        _show_agents(agents)
        if status.conflicts:
            files = console.plural(status.conflicts, "file")
            console.line(f"  Conflicts: {files} changed by several agents (fleetctl conflicts)")
        _show_missions(status, status.counts)
        _show_candidates(status)
        _show_tables(status)


def _show_agents(page: AttentionPage) -> None:
    console.heading("Agents")
    if not page.agents:
        console.line("  none")
        return
    shown = page.agents
    if len(shown) > MOST_AGENTS:
        # Lost agents accumulate; they must not hide the present ones.
        lost = [each.agent_id for each in shown if each.needs == "lost"][MOST_LOST:]
        shown = [each for each in shown if each.agent_id not in lost][:MOST_AGENTS]
    tables.table(COLUMNS, map(row_of, shown), indent="  ")
    if more := page.more + len(page.agents) - len(shown):
        console.line(f"  and {more} more: fleetctl attention, fleetctl agent list")


def _show_missions(status: Status, counts: Counts) -> None:
    of_sessions = [each for each in status.missions if each.automatic and each.agents == 1]
    if len(of_sessions) <= MOST_OF_SESSIONS:
        of_sessions = []
    silent = {each.mission_id for each in status.candidates if each.reason == "silent"}
    rows = [
        (
            each.mission_id,
            console.percent_bar(each.progress_percent),
            f"({each.completed_sorties}/{each.total_sorties})",
            console.last_activity(each.silence_ms, silent=each.mission_id in silent),
            _agents(each),
            console.plural(each.locks, "lock"),
            console.titled(each.title, automatic=each.automatic),
        )
        for each in status.missions
        if each not in of_sessions
    ]
    if of_sessions and not rows:
        count = f"{len(of_sessions)} of one session each (fleetctl mission list)"
        console.heading(f"Missions in progress: {count}")
        return
    console.heading("Missions in progress")
    if rows:
        tables.table(MISSIONS, rows, indent="  ")
    if of_sessions:
        console.line(f"  {len(of_sessions)} more of one session each: fleetctl mission list")
    if rows:
        return
    console.line("  none")
    if console.human_readable():
        console.lines(NEXT if counts.missions else FIRST)


def _agents(mission: MissionLine) -> str:
    """Return how many agents a mission has, and how many of them wait for a permission."""
    agents = console.plural(mission.agents, "agent")
    waiting = mission.needs_permission
    needs = "needs" if waiting == 1 else "need"
    return f"{agents}, {waiting} {needs} permission" if waiting else agents


def _show_candidates(status: Status) -> None:
    if status.candidates:
        console.heading("Waiting for recovery")
    for each in status.candidates:
        checkpoint = each.checkpoint_id or "no checkpoint"
        silent = f"silent {console.span(each.inactivity_duration_ms)}"
        console.headed(f"  {each.mission_id}  {silent}  {checkpoint}  ", each.mission_title)
        if each.lost_agents:
            console.line(f"    {console.lost_agents(each)}")
        if each.checkpoint_id:
            for command in console.resume_commands(each):
                console.whole(f"    {command}")
            if each.lost_agents and not each.agent_id:
                console.line(f"    {NEW_AGENT}")


def _show_tables(status: Status) -> None:
    """Print the unfinished recoveries, and the machines if several share the store."""
    recoveries = [
        (each.id, each.mission_id, each.state, each.agent_id or "", STATES.get(each.state, ""))
        for each in status.recoveries
    ]
    machines = [
        (
            each.name,
            each.status,
            console.plural(each.agents, "agent"),
            each.heard_at,
            "this one" if each.machine_id == status.machine else "",
        )
        for each in status.machines
    ]
    for title, columns, rows in (
        ("Recoveries under way", RECOVERIES, recoveries),
        ("Machines", MACHINES, machines),
    ):
        if rows:
            console.heading(title)
            tables.table(columns, rows, indent="  ")


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
    """Print details that only help to find a bottleneck."""
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
    if (optimistic := writer.optimistic) is not None:
        console.flow(
            "  ",
            f"shared store: {console.plural(optimistic.tries, 'optimistic commit')},"
            f" {optimistic.conflicts} of them repeated;"
            f" {console.plural(optimistic.in_turn, 'request')} waited for the turn of all machines",
        )
    if status.errors:
        kinds = ", ".join(f"{kind} {count}" for kind, count in status.errors.items())
        console.flow("  ", f"errors answered: {kinds}")
    print()
    timings = [
        ("COMMIT to disk", writer.commit),
        *((each.method, each) for each in status.latencies),
    ]
    rows = [
        (name, str(each.count), f"{each.p50_ms:.2f}", f"{each.p95_ms:.2f}", f"{each.max_ms:.2f}")
        for name, each in timings
    ]
    tables.table(("MS", "CALLS", "P50", "P95", "MAX"), rows, indent="  ")
