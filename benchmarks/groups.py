"""The groups of rows that can be measured separately, in the order of the table."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

from .bench import Bench
from .rows import Row


class Group(NamedTuple):
    """Rows that belong together, with their description and the functions that measure them."""

    description: str
    measured_by: tuple[str, ...]


# Named and not imported: for an older fleetd only some of them can be measured.
GROUPS = {
    "references": Group("one fsync, one start of Python", ("themselves.references",)),
    "control": Group("code that never changes: what it shows is noise", ("control.unchanged",)),
    "store": Group("one commit per row, and 64 writers at once", ("crowd.in_the_store",)),
    "progress": Group("counting the progress of a mission", ("progress.progress",)),
    "import": Group("10,000 events of an older store", ("past.importing",)),
    "silence": Group("looking for silent missions, few events and many", ("silence.scanning",)),
    "events": Group(
        "event.append over the socket, one client and 64",
        ("paths.event", "crowd.over_the_socket"),
    ),
    "locks": Group("lock.acquire, lock.release", ("paths.locks",)),
    "mail": Group("message.send, message.inbox, message.ack", ("paths.mail",)),
    "roundtrip": Group("a round trip without the store", ("paths.round_trip",)),
    "dispatch": Group("CPU of a request beside jsonrpcserver", ("dispatch.dispatching",)),
    "redaction": Group("CPU of taking secrets out of texts", ("redaction.redacting",)),
    # Before hundreds of missions are in progress, because a status lists all of them.
    "command": Group("a whole fleetctl", ("paths.command_line",)),
    "hooks": Group(
        "a hook: the daemon's part, the whole process alone and side by side",
        ("hooks.delivered", "hooks.whole_processes"),
    ),
    "checkpoints": Group(
        "checkpoint.create of 4, 100 and 1,000 sorties",
        ("paths.checkpoints", "paths.full_mission"),
    ),
    "snapshots": Group("snapshot.record with its files", ("paths.snapshots",)),
    "recovery": Group(
        "recovery.restore of 100 sorties", ("paths.recovery", "paths.recovery_with_git")
    ),
    "listing": Group("checkpoint.list of many, checkpoint.latest", ("grown.listing",)),
    "backups": Group("the file of a checkpoint", ("backups.backup_files",)),
    "burst": Group("200 hooks at once, and another client meanwhile", ("burst.bursts",)),
    "memory": Group("a daemon with 1,000,000 events", ("grown.memory",)),
    "search": Group("searches in 1,000,000 events", ("searching.searching",)),
    "pruning": Group("requests while 97,000 checkpoints are pruned", ("pruning.pruning",)),
}


def measured(name: str, bench: Bench) -> Iterator[Row]:
    """Measure a group, and stop the peers that it started."""
    for target in GROUPS[name].measured_by:
        module, function = target.split(".")
        yield from getattr(import_module(f".{module}", __package__), function)(bench)
    bench.peers.close()


def named(text: str) -> Sequence[str]:
    """Return the groups in a comma-separated list, in the table's order; raises ValueError."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown or not wanted:
        what = f"no group is called {', '.join(unknown)}" if unknown else "no group is named"
        raise ValueError(f"{what}; there are {', '.join(GROUPS)}")
    return [name for name in GROUPS if name in wanted]


def explained() -> str:
    """Return a description of each group, one line for each."""
    width = max(map(len, GROUPS))
    return "\n".join(f"  {name:<{width}}  {group.description}" for name, group in GROUPS.items())
