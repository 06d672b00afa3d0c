"""The words that fields are made of: ids, names, texts, enums; must not define any record.

Patterns end in ``$(?!\\n)`` because Python's ``$`` alone accepts a trailing newline, and ids become
file names.
"""

from typing import Annotated, Literal

from msgspec import Meta

RECORD_ID = r"^[a-z]{2,4}-[A-Za-z0-9_-]{1,64}$(?!\n)"
AGENT_ID = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}$(?!\n)"
EVENT_TYPE = r"^[a-z][a-z0-9_]{2,63}$(?!\n)"
STREAM = (
    r"^(fleet|mission:[a-z]{2,4}-[A-Za-z0-9_-]{1,64}"
    r"|agent:[A-Za-z0-9][A-Za-z0-9._:@-]{0,63})$(?!\n)"
)
CLEAN_PATH = r"^[^\x00]+$(?!\n)"
# A run's id names a directory beside those of the missions.
RUN_ID = r"^(?!msn-)[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$(?!\n)"
SNAPSHOT_ID = r"^cp_[A-Za-z0-9]{1,32}_[A-Za-z0-9]{1,32}$(?!\n)"

# What a pattern means in words: an error that quotes a regular expression helps nobody.
PATTERN_MEANINGS = {
    RECORD_ID: "an id such as msn-1a2b3c4d (2-4 lowercase letters, a dash, then letters, digits, "
    "_ or -)",
    AGENT_ID: "a name of 1-64 letters, digits or . _ : @ - that starts with a letter or digit",
    EVENT_TYPE: "an event type of 3-64 lowercase letters, digits or _ that starts with a letter",
    STREAM: "a stream: fleet, mission:<id> or agent:<id>",
    CLEAN_PATH: "a path without NUL bytes",
    RUN_ID: "the id of a run: 1-64 letters, digits or . _ - that begin neither with a dot nor with "
    "msn-",
    SNAPSHOT_ID: "the id of a snapshot such as cp_20260105T120000000Z_42",
}

# How the ids of each noun begin.
ID_PREFIXES = {
    "mission": "msn",
    "sortie": "srt",
    "checkpoint": "chk",
    "lock": "lck",
    "message": "msg",
    "recovery": "rcv",
}

RecordId = Annotated[str, Meta(pattern=RECORD_ID, examples=["msn-1a2b3c4d"])]
MissionId = RecordId
SortieId = RecordId
LockId = RecordId
MessageId = RecordId
CheckpointId = RecordId
AgentId = Annotated[str, Meta(pattern=AGENT_ID, examples=["specialist-1"])]
RunId = Annotated[str, Meta(pattern=RUN_ID, examples=["777e68b4-1ad1-4f6c-9d81-64d0cae95a84"])]
SnapshotId = Annotated[str, Meta(pattern=SNAPSHOT_ID, examples=["cp_20260105T120000000Z_42"])]
Stream = Annotated[str, Meta(pattern=STREAM, examples=["mission:msn-1a2b3c4d"])]
EventType = Annotated[str, Meta(pattern=EVENT_TYPE, examples=["file_modified"])]

Title = Annotated[str, Meta(min_length=1, max_length=500)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=65_536)]
Path = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=CLEAN_PATH)]
Files = Annotated[list[Path], Meta(max_length=10_000)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Milliseconds = Annotated[int, Meta(ge=0, le=7 * 86_400_000)]
LONGEST_LEASE_MS = 7 * 86_400_000
ThresholdMs = Annotated[int, Meta(ge=0, le=30 * 86_400_000)]
LeaseMs = Annotated[int, Meta(ge=1, le=LONGEST_LEASE_MS)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Seq = Annotated[int, Meta(ge=0, le=2**62)]

Priority = Literal["low", "medium", "high", "critical"]
MissionStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
# A mission that may still change; every other status is an end.
OPEN_MISSION: tuple[MissionStatus, ...] = ("pending", "in_progress")
SortieStatus = Literal["pending", "assigned", "in_progress", "blocked", "completed", "failed"]
# What a sortie ends in.
CLOSED_SORTIE: tuple[SortieStatus, ...] = ("completed", "failed")
Role = Literal["dispatch", "specialist"]
AgentStatus = Literal["active", "waiting", "idle", "lost", "gone"]
LockStatus = Literal["active", "released", "expired", "forced"]
DeliveryStatus = Literal["queued", "delivered", "acked", "failed"]
Trigger = Literal["progress", "error", "manual", "compaction"]
ErrorKind = Literal["exception", "api_error", "lock_timeout", "delivery_failure", "tool_failure"]
StorageLocation = Literal["sqlite", "file"]
RecoveryState = Literal["pending", "briefed", "resumed", "unconfirmed"]
Scope = Literal["mission", "agent"]
# What has a row and a file.
Noun = Literal["checkpoint", "snapshot"]
SnapshotSource = Literal["step_boundary", "error_boundary", "timer", "manual"]
RunStatus = Literal["in_progress", "failed", "completed", "paused"]
StepStatus = Literal["pending", "in_progress", "done", "failed", "skipped"]
WindowPressure = Literal["low", "medium", "high"]
OutcomeKind = Literal["shell", "slash_command", "tool_use"]
Verdict = Literal["PASS", "FAIL", "WARN"]
