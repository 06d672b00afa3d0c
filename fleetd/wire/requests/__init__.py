"""Every request of the protocol, a file per noun; must not hold rules.

The names stand here for those who need many of them. They are read when the first one is asked
for: a command line imports the one or two nouns that it needs, and must not pay for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent import (
        AgentDeregister,
        AgentGet,
        AgentHeartbeat,
        AgentList,
        AgentNote,
        AgentRegister,
    )
    from .checkpoint import (
        CheckpointCreate,
        CheckpointDelete,
        CheckpointGet,
        CheckpointLatest,
        CheckpointList,
        CheckpointPrune,
        CheckpointVerify,
        ErrorReport,
    )
    from .event import (
        CursorAdvance,
        CursorGet,
        EventAppend,
        EventList,
        EventSubscribe,
        EventUnsubscribe,
    )
    from .lock import (
        LockAcquire,
        LockCheck,
        LockForceRelease,
        LockList,
        LockRelease,
        LockRenew,
    )
    from .message import (
        MessageAck,
        MessageInbox,
        MessageList,
        MessageRequeue,
        MessageSend,
    )
    from .mission import (
        MissionCancel,
        MissionComplete,
        MissionCreate,
        MissionCurrent,
        MissionDelete,
        MissionFail,
        MissionGet,
        MissionList,
        MissionStart,
        MissionUpdate,
    )
    from .recovery import (
        RecoveryContextGet,
        RecoveryDetect,
        RecoveryList,
        RecoveryRestore,
    )
    from .registry import METHODS, REQUESTS
    from .sortie import (
        SortieAssign,
        SortieBlock,
        SortieComplete,
        SortieCreate,
        SortieFail,
        SortieGet,
        SortieList,
        SortieProgress,
        SortieRemove,
        SortieStart,
        SortieUnblock,
    )
    from .system import (
        RpcDiscover,
        SystemBackup,
        SystemConfig,
        SystemDoctor,
        SystemHealth,
        SystemHello,
        SystemMetrics,
        SystemStatus,
    )
else:

    def __getattr__(name):
        return getattr(import_module(".registry", __package__), name)


__all__ = [
    "METHODS",
    "REQUESTS",
    "AgentDeregister",
    "AgentGet",
    "AgentHeartbeat",
    "AgentList",
    "AgentNote",
    "AgentRegister",
    "CheckpointCreate",
    "CheckpointDelete",
    "CheckpointGet",
    "CheckpointLatest",
    "CheckpointList",
    "CheckpointPrune",
    "CheckpointVerify",
    "CursorAdvance",
    "CursorGet",
    "ErrorReport",
    "EventAppend",
    "EventList",
    "EventSubscribe",
    "EventUnsubscribe",
    "LockAcquire",
    "LockCheck",
    "LockForceRelease",
    "LockList",
    "LockRelease",
    "LockRenew",
    "MessageAck",
    "MessageInbox",
    "MessageList",
    "MessageRequeue",
    "MessageSend",
    "MissionCancel",
    "MissionComplete",
    "MissionCreate",
    "MissionCurrent",
    "MissionDelete",
    "MissionFail",
    "MissionGet",
    "MissionList",
    "MissionStart",
    "MissionUpdate",
    "RecoveryContextGet",
    "RecoveryDetect",
    "RecoveryList",
    "RecoveryRestore",
    "RpcDiscover",
    "SortieAssign",
    "SortieBlock",
    "SortieComplete",
    "SortieCreate",
    "SortieFail",
    "SortieGet",
    "SortieList",
    "SortieProgress",
    "SortieRemove",
    "SortieStart",
    "SortieUnblock",
    "SystemBackup",
    "SystemConfig",
    "SystemDoctor",
    "SystemHealth",
    "SystemHello",
    "SystemMetrics",
    "SystemStatus",
]
