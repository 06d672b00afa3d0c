"""Patterns and enumerated words of the protocol. Without msgspec: commands load it at start.

Patterns end in ``$(?!\\n)`` because Python's ``$`` alone accepts a trailing newline, and ids become
file names.
"""

from typing import Literal

RECORD_ID = r"^[a-z]{2,4}-[A-Za-z0-9_-]{1,64}$(?!\n)"
AGENT_ID = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}$(?!\n)"
EVENT_TYPE = r"^[a-z][a-z0-9_]{2,63}$(?!\n)"
TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$(?!\n)"
STREAM = (
    r"^(fleet|mission:[a-z]{2,4}-[A-Za-z0-9_-]{1,64}"
    r"|agent:[A-Za-z0-9][A-Za-z0-9._:@-]{0,63})$(?!\n)"
)
CLEAN_PATH = r"^[^\x00]+$(?!\n)"
# A run's id names a directory beside those of the missions.
RUN_ID = r"^(?!msn-)[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$(?!\n)"
SNAPSHOT_ID = r"^cp_[A-Za-z0-9]{1,32}_[A-Za-z0-9]{1,32}$(?!\n)"

# How the ids of each noun begin.
ID_PREFIXES = {
    "mission": "msn",
    "sortie": "srt",
    "checkpoint": "chk",
    "lock": "lck",
    "message": "msg",
    "recovery": "rcv",
    "note": "nte",
    "handoff": "hnd",
}

Priority = Literal["low", "medium", "high", "critical"]
MissionStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
# A mission that may still change; every other status is an end.
OPEN_MISSION: tuple[MissionStatus, ...] = ("pending", "in_progress")
# Who made a mission: somebody who asked for it, or fleetd for a session that had none.
MissionOrigin = Literal["person", "session"]
# Whether hooks give the agents of a mission their briefing after a compaction.
OnOff = Literal["on", "off"]
# Why a mission is closed: its session ended, it went into another mission, or somebody said so.
ClosedReason = Literal["session", "merged", "person"]
SortieStatus = Literal["pending", "assigned", "in_progress", "blocked", "completed", "failed"]
# What a sortie ends in.
CLOSED_SORTIE: tuple[SortieStatus, ...] = ("completed", "failed")
Role = Literal["dispatch", "specialist"]
AgentStatus = Literal["active", "waiting", "idle", "lost", "gone"]
# What an agent that waits needs of a person, the most urgent first. One that is in the background
# has ended its turn, and something that it began still runs.
AgentNeed = Literal[
    "permission",
    "question",
    "plan_approval",
    "failed",
    "limit",
    "lost",
    "finished",
    "background",
]
# What runs for an agent beside its own turn.
RunningKind = Literal["subagent", "shell", "teammate", "schedule", "task"]
# What a note says: a choice that was made, a way that is out, a limit to keep, something learned.
NoteKind = Literal["decision", "ruled-out", "constraint", "finding"]
# Whose word a note is: a person's, an agent's, or nobody's, as fleetd saw it happen.
NoteOrigin = Literal["person", "agent", "fact"]
# What a search finds: mail, notes, and what events tell of.
SearchKind = Literal["event", "mail", "note", "prompt", "answer", "command", "file"]
StoreKind = Literal["sqlite", "postgresql"]
MACHINE_ID = r"^[0-9a-f]{16}$"
MachineStatus = Literal["here", "left", "lost"]
LockStatus = Literal["active", "released", "expired", "forced"]
LockMode = Literal["exclusive", "shared"]
DeliveryStatus = Literal["queued", "delivered", "acked", "failed"]
Trigger = Literal["progress", "error", "manual", "compaction"]
ErrorKind = Literal["exception", "api_error", "lock_timeout", "delivery_failure", "tool_failure"]
StorageLocation = Literal["sqlite", "file"]
RecoveryState = Literal["pending", "briefed", "resumed", "unconfirmed"]
Scope = Literal["mission", "agent"]
# An agent asked for it, it awaits its session, or how it ended.
HandoffState = Literal["asked", "pending", "completed", "expired", "cancelled", "failed"]
# Why a mission waits for recovery.
CandidateReason = Literal["silent", "agent_lost"]
# What a mission is looked for, and what says that it is meant.
SelectionPurpose = Literal["work", "briefing", "recovery", "report"]
SelectionReason = Literal["take_over", "agent", "directory", "project", "only"]
# What has a row and a file.
Noun = Literal["checkpoint", "snapshot"]
SnapshotSource = Literal["step_boundary", "error_boundary", "timer", "manual"]
RunStatus = Literal["in_progress", "failed", "completed", "paused"]
StepStatus = Literal["pending", "in_progress", "done", "failed", "skipped"]
WindowPressure = Literal["low", "medium", "high"]
OutcomeKind = Literal["shell", "slash_command", "tool_use"]
Verdict = Literal["PASS", "FAIL", "WARN"]
