"""What fields may hold: ids, names, texts, words, with their limits."""

from typing import Annotated

from msgspec import Meta

# Who checks fields needs the words as well.
from .patterns import *  # noqa: F403
from .patterns import (
    AGENT_ID,
    CLEAN_PATH,
    EVENT_TYPE,
    MACHINE_ID,
    RECORD_ID,
    RUN_ID,
    SNAPSHOT_ID,
    STREAM,
    TIMESTAMP,
)

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
    MACHINE_ID: "the id of a machine, of 16 hex digits",
    TIMESTAMP: "a time in UTC such as 2026-01-05T12:00:00.000Z",
}

RecordId = Annotated[str, Meta(pattern=RECORD_ID, examples=["msn-1a2b3c4d"])]
MissionId = RecordId
SortieId = RecordId
LockId = RecordId
MessageId = RecordId
RecoveryId = RecordId
CheckpointId = RecordId
NoteId = RecordId
HandoffId = RecordId
AgentId = Annotated[str, Meta(pattern=AGENT_ID, examples=["specialist-1"])]
RunId = Annotated[str, Meta(pattern=RUN_ID, examples=["777e68b4-1ad1-4f6c-9d81-64d0cae95a84"])]
SnapshotId = Annotated[str, Meta(pattern=SNAPSHOT_ID, examples=["cp_20260105T120000000Z_42"])]
MachineId = Annotated[str, Meta(pattern=MACHINE_ID, examples=["0f3a5c7e9b1d2468"])]
Stream = Annotated[str, Meta(pattern=STREAM, examples=["mission:msn-1a2b3c4d"])]
Timestamp = Annotated[str, Meta(pattern=TIMESTAMP, examples=["2026-01-05T12:00:00.000Z"])]
EventType = Annotated[str, Meta(pattern=EVENT_TYPE, examples=["file_modified"])]

Title = Annotated[str, Meta(min_length=1, max_length=500)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=65_536)]
# An empty one is refused by the rule, which names both ends of what is allowed.
NOTE_CHARS = 2_000
NoteText = Annotated[str, Meta(max_length=NOTE_CHARS)]
Path = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=CLEAN_PATH)]
Files = Annotated[list[Path], Meta(max_length=10_000)]
DependsOn = Annotated[list[SortieId], Meta(max_length=1_000)]
# SHA-1 or SHA-256.
CommitId = Annotated[str, Meta(pattern=r"^[0-9a-f]{40,64}$(?!\n)")]
Percent = Annotated[int, Meta(ge=0, le=100)]
Milliseconds = Annotated[int, Meta(ge=0, le=7 * 86_400_000)]
LONGEST_LEASE_MS = 7 * 86_400_000
ThresholdMs = Annotated[int, Meta(ge=0, le=30 * 86_400_000)]
LeaseMs = Annotated[int, Meta(ge=1, le=LONGEST_LEASE_MS)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Seq = Annotated[int, Meta(ge=0, le=2**62)]
# What came back out of a checkpoint is found before all that has a place in the log.
SearchPlace = Annotated[int, Meta(ge=-(2**62), le=2**62)]
