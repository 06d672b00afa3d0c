"""The groups of rows that can be measured on their own, in the order of the table."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from . import crowd, dispatch, grown, hooks, inside, past, paths, pruning, silence
from .bench import Bench
from .rows import Row


class Group(NamedTuple):
    """Rows that belong together, and what they say to somebody who chooses."""

    says: str
    measure: Callable[[Bench], Iterator[Row]]


def _events(bench: Bench) -> Iterator[Row]:
    yield from paths.event(bench)
    yield from crowd.over_the_socket(bench)


def _recovery(bench: Bench) -> Iterator[Row]:
    yield from paths.recovery(bench)
    if shutil.which("git"):
        yield from paths.recovery_with_git(bench)


GROUPS = {
    "store": Group("one commit per row, and 64 writers at once", crowd.in_the_store),
    "progress": Group("counting the progress of a mission", inside.progress),
    "import": Group("10,000 events of an older store", past.importing),
    "silence": Group("looking for silent missions, few events and many", silence.scanning),
    "events": Group("event.append over the socket, one client and 64", _events),
    "locks": Group("lock.acquire, lock.release", paths.locks),
    "mail": Group("message.send, message.inbox, message.ack", paths.mail),
    "roundtrip": Group("a round trip without the store", paths.round_trip),
    "dispatch": Group("CPU of a request beside jsonrpcserver", dispatch.dispatching),
    "checkpoints": Group("checkpoint.create of 4, 100 and 1,000 sorties", paths.checkpoints),
    "snapshots": Group("snapshot.record with its files", paths.snapshots),
    "recovery": Group("recovery.restore of 100 sorties", _recovery),
    "listing": Group("checkpoint.list of many, checkpoint.latest", grown.listing),
    "backups": Group("the file of a checkpoint", inside.backup_files),
    "command": Group("a whole fleetctl", paths.command_line),
    "hooks": Group("a whole hook, alone and side by side", hooks.whole_processes),
    "memory": Group("a daemon with 1,000,000 events", grown.memory),
    "pruning": Group("requests while 97,000 checkpoints are pruned", pruning.pruning),
}


def named(text: str) -> Sequence[str]:
    """Return the groups in a list with commas, in the table's order; ValueError names others."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown or not wanted:
        what = f"no group is called {', '.join(unknown)}" if unknown else "no group is named"
        raise ValueError(f"{what}; there are {', '.join(GROUPS)}")
    return [name for name in GROUPS if name in wanted]


def explained() -> str:
    """Return what each group measures, a line for each."""
    width = max(map(len, GROUPS))
    return "\n".join(f"  {name:<{width}}  {group.says}" for name, group in GROUPS.items())
