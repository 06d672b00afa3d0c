"""Completion candidates: what a shell offers for an ID, most wanted first.

It runs at every key press, so it reads short lists and gives up early.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from fleetd.host import paths
from fleetd.protocol import endings
from fleetd.protocol.errors import FleetError

from ..client import Fleet
from ..context import cwd, this_agent
from ..output import console, times
from ..output.text import cut

# The user has pressed a key and waits: a longer answer is not worth it.
TIMEOUT_S = 0.3


def print_candidates(kind: str, prefix: str) -> None:
    """Print IDs with descriptions, or nothing after any error."""
    if kind not in KINDS:
        return
    # The timer ends whatever hangs, even a read from a pipe in the place of a file.
    signal.signal(signal.SIGALRM, lambda _number, _frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
    text = ""
    try:
        found = _ask_daemon(kind, prefix)
        columns = console.terminal_width() if "COLUMNS" in os.environ else None
        text = "".join(f"{line(each, columns)}\n" for each in found)
    except (FleetError, OSError):
        pass
    finally:  # an interpreter that ends has no handler, and the signal would kill it
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(text, end="")


def _ask_daemon(kind: str, prefix: str) -> "list[Completion]":
    path = paths.socket_path()
    try:
        # Connecting to a socket of systemd would start a daemon at a key press. So the process
        # whose pid is in the socket's lock file must exist. Do not try the lock itself: a daemon
        # that starts at this moment would find it taken.
        os.kill(int(paths.lock_of_socket(path).read_text("ascii")), 0)
    except (OSError, ValueError):
        return []
    deadline = time.monotonic() + TIMEOUT_S
    with Fleet(path, connect_s=TIMEOUT_S) as client:

        def ask(method: str, **params: Any) -> Any:
            return client.call_raw(method, params, reply_s=max(0.01, deadline - time.monotonic()))

        return candidates(kind, prefix, ask)


# Calls a method that changes nothing and returns its result.
Ask = Callable[..., Any]
LIMIT = 100
# No other form of an ID is ever offered: a shell puts it into its line.
VALID_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,127}")
# The statuses of records that commands can use, in the order in which they are offered.
STATUSES = {
    "mission.pending": ("pending",),
    "mission.begun": ("in_progress",),
    "mission.open": ("in_progress", "pending"),
    "mission.ended": ("completed", "failed", "cancelled"),
    "sortie.waiting": ("assigned", "pending"),
    "sortie.begun": ("in_progress", "blocked"),
    "sortie.blocked": ("blocked",),
    "sortie.open": ("in_progress", "blocked", "assigned", "pending"),
    "lock.active": ("active",),
    "message.open": ("open",),
    "agent.lost": ("lost",),
    "machine.away": ("lost", "left"),
}
# How many missions in progress are searched besides the one of this directory.
MISSIONS = 5


class Completion(NamedTuple):
    """An ID, its one-line description, and its record's status."""

    id: str
    text: str
    status: str = ""


def candidates(kind: str, prefix: str, ask: Ask) -> list[Completion]:
    """Return candidates with a prefix: those that the kind's commands want, else all."""
    noun = kind.partition(".")[0]
    found: dict[str, Completion] = {}
    for each in SOURCES[noun](ask):
        if VALID_ID.fullmatch(each.id) and each.id.startswith(prefix):
            found.setdefault(each.id, each)
    wanted = STATUSES.get(kind, ())
    fitting = [each for each in found.values() if each.status in wanted]
    fitting.sort(key=lambda each: wanted.index(each.status))
    return (fitting or list(found.values()))[:LIMIT]


def _missions(ask: Ask) -> Iterator[Completion]:
    """Yield missions: in progress, then pending, then the newest."""
    begun = ask("mission.list", status="in_progress", limit=LIMIT).missions
    pending = ask("mission.list", status="pending", limit=LIMIT).missions
    newest = ask("mission.list", limit=LIMIT).missions
    for each in (*begun, *pending, *newest):
        progress = f" {each.progress_percent}%" if each.status == "in_progress" else ""
        state = endings.state(each.status, each.closed_reason)
        yield Completion(each.id, f"{state}{progress}  {each.title}", each.status)


def _current(ask: Ask) -> list[str]:
    """Return the IDs of the relevant missions, this directory's first."""
    here = ask("mission.current", cwd=cwd(), agent_id=this_agent()).mission
    others = ask("mission.list", status="in_progress", limit=MISSIONS).missions
    return list(dict.fromkeys([*([here.id] if here else []), *(each.id for each in others)]))


def _sorties(ask: Ask) -> Iterator[Completion]:
    for mission in _current(ask):
        for each in ask("sortie.list", mission_id=mission).sorties:
            suffix = f" {each.assigned_to}" if each.assigned_to else ""
            yield Completion(each.id, f"{each.status}{suffix}  {each.title}", each.status)


def _checkpoints(ask: Ask) -> Iterator[Completion]:
    """Yield checkpoints: of this directory's mission, then of all; newest first, undo last."""
    found: list[Any] = []
    for mission in _current(ask)[:1]:
        found += ask("checkpoint.list", mission_id=mission, limit=LIMIT).checkpoints
    found += ask("checkpoint.list", limit=LIMIT).checkpoints
    for each in sorted(found, key=lambda each: each.undo):
        why = each.trigger_details or ("undo" if each.undo else "")
        when = _when(each.timestamp)
        yield Completion(each.id, f"{when}  {each.trigger} {each.progress_percent}%  {why}")


def _snapshots(ask: Ask) -> Iterator[Completion]:
    found = ask("snapshot.list", limit=LIMIT).snapshots
    for each in found:
        text = f"{_when(each.created_at)}  {each.source} {each.status}  {each.run_id}"
        yield Completion(each.snapshot_id, text)
    yield from _of_runs(found)


def _runs(ask: Ask) -> Iterator[Completion]:
    yield from _of_runs(ask("snapshot.list", limit=LIMIT).snapshots)


def _of_runs(snapshots: Iterable[Any]) -> Iterator[Completion]:
    """Yield the runs of snapshots, newest first; only a run's newest snapshot is described."""
    for each in snapshots:
        yield Completion(each.run_id, f"{_when(each.created_at)}  {each.status}")


def _locks(ask: Ask) -> Iterator[Completion]:
    for each in ask("lock.list").locks:
        yield Completion(each.id, f"{each.held_by}  {console.path(each.file)}", each.status)


def _messages(ask: Ask) -> Iterator[Completion]:
    for each in reversed(ask("message.list").messages):
        owed = any(to.status != "acked" for to in each.deliveries)
        text = f"{each['from']} to {', '.join(each.to)}  {each.subject}"
        yield Completion(each.id, text, "open" if owed else "acked")


def _notes(ask: Ask) -> Iterator[Completion]:
    """Yield the valid notes of the relevant missions, newest first."""
    for mission in _current(ask):
        for each in ask("note.list", mission_id=mission, newest=True, limit=LIMIT).notes:
            yield Completion(each.id, f"{each.kind}  {each.text}")


def _threads(ask: Ask) -> Iterator[Completion]:
    for each in reversed(ask("message.list").messages):
        if each.thread_id:
            yield Completion(each.thread_id, each.subject)


def _agents(ask: Ask) -> Iterator[Completion]:
    """Yield agents: present ones, then lost ones, then those that left."""
    late = ("lost", "gone")
    found = ask("agent.list").agents
    for each in sorted(found, key=lambda agent: (agent.status in late, agent.status == "gone")):
        text = f"{each.status} {each.role}  {each.harness or ''} {console.path(each.cwd or '')}"
        yield Completion(each.id, text, each.status)


def _sessions(ask: Ask) -> Iterator[Completion]:
    for each in ask("agent.list").agents:
        if each.session_id:
            yield Completion(
                each.session_id, f"{each.harness or ''} {each.id} {console.path(each.cwd or '')}"
            )
    yield from _runs(ask)


def _machines(ask: Ask) -> Iterator[Completion]:
    for each in ask("system.status").machines:
        yield Completion(each.machine_id, f"{each.status}  {each.name}", each.status)


def _when(timestamp: str) -> str:
    return times.ago(timestamp, console.now_ms())


SOURCES: dict[str, Callable[[Ask], Iterator[Completion]]] = {
    "mission": _missions,
    "sortie": _sorties,
    "checkpoint": _checkpoints,
    "snapshot": _snapshots,
    "run": _runs,
    "session": _sessions,
    "lock": _locks,
    "message": _messages,
    "thread": _threads,
    "note": _notes,
    "agent": _agents,
    "machine": _machines,
}
KINDS = (*SOURCES, *STATUSES)


def line(candidate: Completion, columns: int | None = None) -> str:
    """Return a candidate as the shells read it: the ID, a tab, its description.

    Shells count characters. If ``columns`` is given, the line that a shell shows takes fewer.
    """
    text = console.clean(candidate.text).strip()
    if columns is not None:
        text = cut(text, columns - len(candidate.id) - len("  ") - 1)
    return f"{candidate.id}\t{text}"
