"""``fleetctl status``: the fleet at a glance."""

from argparse import Namespace

from fleetd.wire.model import Recovery
from fleetd.wire.requests.system import MissionLine, Status, SystemStatus
from fleetd.wire.times import duration

from .. import render
from ..client import connect
from ..options import Subparsers, command

# What a recovery that is not over waits for.
STATES = {
    "pending": "nobody was briefed yet",
    "briefed": "briefed, not at work again yet",
    "unconfirmed": "briefed, and not heard of since",
}


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    command(
        subparsers,
        "status",
        run,
        "Missions in progress, missions that wait for recovery, and the daemon's state.",
    )


def run(args: Namespace) -> int:
    """Ask the daemon and print what it says."""
    with connect() as client:
        status = client.call(SystemStatus())
    if args.json:
        render.print_json(status)
    else:
        _show(status)
    return 0


def _show(status: Status) -> None:
    render.line(
        f"fleetd {status.version} (pid {status.pid}), running for {duration(status.uptime_ms)}"
    )
    render.heading("Missions in progress")
    if status.missions:
        render.table([""] * 7, map(_mission_row, status.missions), indent="  ")
    else:
        render.line("  none")
    _show_candidates(status)
    _show_recoveries(status.recoveries)
    _show_store(status)


def _mission_row(mission: MissionLine) -> tuple[str, ...]:
    return (
        mission.mission_id,
        f"{mission.progress_percent}%",
        f"({mission.completed_sorties}/{mission.total_sorties})",
        render.silence(mission.silence_ms),
        render.plural(mission.agents, "agent"),
        render.plural(mission.locks, "lock"),
        render.titled(mission.title, automatic=mission.automatic),
    )


def _show_candidates(status: Status) -> None:
    if not status.candidates:
        return
    render.heading("Waiting for recovery")
    for each in status.candidates:
        checkpoint = each.checkpoint_id or "no checkpoint"
        silent = render.silence(each.inactivity_duration_ms)
        render.line(f"  {each.mission_id}  {silent}  {checkpoint}  {each.mission_title}")
        if each.checkpoint_id:
            render.line(f"    fleetctl resume --mission {each.mission_id}")


def _show_recoveries(recoveries: list[Recovery]) -> None:
    if not recoveries:
        return
    render.heading("Recoveries under way")
    rows = [
        (each.id, each.mission_id, each.state, each.agent_id or "", STATES.get(each.state, ""))
        for each in recoveries
    ]
    render.table([""] * 5, rows, indent="  ")


def _show_store(status: Status) -> None:
    counts = status.counts
    render.heading("Store")
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
    render.line("  " + ", ".join(render.plural(count, noun) for count, noun in named))
    recovered = "recovery" if counts.recoveries == 1 else "recoveries"
    render.line(f"  {counts.recoveries} {recovered} so far")
    render.line(f"  files still to write: {status.backup_backlog}")
    database, wal = render.size(status.database_bytes), render.size(status.wal_bytes)
    render.line(f"  database {database}, write-ahead log {wal}")
