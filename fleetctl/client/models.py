"""The requests and records of ``fleetd.protocol`` as commands use them; imports no msgspec.

Whoever checks types sees the Structs themselves. What runs are plain stand-ins by the same names:
a request is what it was given, and a record what the daemon answered.
"""

from typing import TYPE_CHECKING, Any

from .records import Asked, Record

if TYPE_CHECKING:
    from fleetd.protocol.checkpoint_diff import *  # noqa: F403
    from fleetd.protocol.records import Agent as Agent
    from fleetd.protocol.records import Checkpoint as Checkpoint
    from fleetd.protocol.records import CheckpointSummary as CheckpointSummary
    from fleetd.protocol.records import Event as Event
    from fleetd.protocol.records import Finding as Finding
    from fleetd.protocol.records import Lock as Lock
    from fleetd.protocol.records import Message as Message
    from fleetd.protocol.records import Mission as Mission
    from fleetd.protocol.records import Recovery as Recovery
    from fleetd.protocol.records import RecoveryCandidate as RecoveryCandidate
    from fleetd.protocol.records import RecoveryContext as RecoveryContext
    from fleetd.protocol.records import RestoreResult as RestoreResult
    from fleetd.protocol.records import Sortie as Sortie
    from fleetd.protocol.records import SourceDetail as SourceDetail
    from fleetd.protocol.request import Mutation as Mutation
    from fleetd.protocol.request import Query as Query
    from fleetd.protocol.request import Request as Request
    from fleetd.protocol.requests.agent import *  # noqa: F403
    from fleetd.protocol.requests.checkpoint import *  # noqa: F403
    from fleetd.protocol.requests.event import *  # noqa: F403
    from fleetd.protocol.requests.hook import *  # noqa: F403
    from fleetd.protocol.requests.lock import *  # noqa: F403
    from fleetd.protocol.requests.message import *  # noqa: F403
    from fleetd.protocol.requests.mission import *  # noqa: F403
    from fleetd.protocol.requests.recovery import *  # noqa: F403
    from fleetd.protocol.requests.snapshot import *  # noqa: F403
    from fleetd.protocol.requests.sortie import *  # noqa: F403
    from fleetd.protocol.requests.system import *  # noqa: F403
    from fleetd.protocol.snapshots import *  # noqa: F403
    from fleetd.protocol.status import *  # noqa: F403  # noqa: F403

# Of each noun the methods that change nothing, then those that may.
_NOUNS = {
    "system": ("hello status health config metrics", "doctor backup forget"),
    "rpc": ("discover", ""),
    "mission": ("get list current select", "create start update complete fail cancel delete"),
    "sortie": ("get list", "create assign start progress block unblock complete fail remove"),
    "agent": ("get list", "register heartbeat note deregister current"),
    "lock": ("check list", "acquire renew release force_release"),
    "message": ("list", "send inbox ack requeue"),
    "event": ("list subscribe unsubscribe", "append"),
    "cursor": ("get", "advance"),
    "checkpoint": ("get latest list compare", "create delete verify prune pull"),
    "error": ("", "report"),
    "snapshot": ("latest get list", "record prune verify"),
    "recovery": ("detect context list", "restore"),
    "hook": ("status", "deliver"),
}
# Every method, and whether it may change something.
METHODS = {
    f"{noun}.{action}": bool(changes)
    for noun, sorts in _NOUNS.items()
    for changes, actions in enumerate(sorts)
    for action in actions.split()
}
# Those that take long tell how far they are.
LONG = frozenset(
    {
        *("system.doctor", "system.backup", "system.forget", "mission.delete"),
        *("checkpoint.verify", "checkpoint.prune", "checkpoint.pull"),
        *("snapshot.verify", "snapshot.prune"),
    }
)
# A request is named after its method, unless a record already is.
_NAMED_OTHERWISE = {"recovery.context": "RecoveryContextGet", "hook.status": "HookStatusGet"}
_REQUESTS = {
    _NAMED_OTHERWISE.get(method) or method.replace(".", "_").title().replace("_", ""): method
    for method in METHODS
}

# The records that commands name; whoever names another adds it here.
_RECORD_NAMES = (
    "Agent Artifact AwayStatus BackupResult Checkpoint CheckpointPage CheckpointSummary "
    "CommandOutcome ContextDigest Counts DeclaredCompliance DeclaredDigest DeclaredHints "
    "DeclaredOutcome DeclaredStep Detection Event Findings Forgotten HarnessStatus Hello Lock "
    "Message Mission MissionLine Mutation NewSortie PrunedCheckpoint PrunedSnapshot "
    "PulledCheckpoints Query Recovery RecoveryCandidate RecoveryContext Request RestoreResult "
    "SelectedMission Setting Snapshot SnapshotPage SnapshotSummary Sortie SourceDetail SpoolStatus "
    "Status StepState Timing"
)
_RECORDS = frozenset(_RECORD_NAMES.split())


class _Finding(Record):
    """What a check found: commands check things by themselves, and print both alike."""

    def __init__(
        self,
        *,
        check: str,
        ok: bool,
        detail: str,
        subject: str | None = None,
        fixed: bool = False,
        reason_code: str | None = None,
    ) -> None:
        told = {"check": check, "ok": ok, "detail": detail, "subject": subject}
        super().__init__(told, fixed=fixed, reason_code=reason_code)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "Finding":
        return _Finding
    if name in _RECORDS:
        return Record
    if (method := _REQUESTS.get(name)) is None:
        raise AttributeError(f"fleetd knows no request and no record that is called {name}")
    about = {"method": method, "changes": METHODS[method], "long": method in LONG}
    asked = type(name, (Asked,), about)
    globals()[name] = asked
    return asked
