-- Silence, loss and recovery states. "awake" columns count ms of a clock that nobody steps and that
-- stands still while the machine sleeps; store_meta.boot says which boot they belong to. Zero is
-- "long ago": the start-up sets the figures of another boot anew, from the times beside them.

ALTER TABLE missions ADD COLUMN active_awake_ms INTEGER NOT NULL DEFAULT 0;
-- Set with the episode, cleared by activity: the scan reads only who may have fallen silent.
ALTER TABLE missions ADD COLUMN silent INTEGER NOT NULL DEFAULT 0;
DROP INDEX idx_missions_silence;
DROP INDEX idx_missions_status;
CREATE INDEX idx_missions_status ON missions (status, silent, active_awake_ms);

ALTER TABLE agents ADD COLUMN seen_awake_ms INTEGER NOT NULL DEFAULT 0;
-- Agents that nobody can watch: they are expected to say that they live.
CREATE INDEX idx_agents_unwatched ON agents (seen_awake_ms) WHERE status = 'active' AND pid IS NULL;

-- When the holder's process was found dead; the lease then ends after a short grace.
ALTER TABLE locks ADD COLUMN orphaned_at TEXT;

ALTER TABLE recoveries ADD COLUMN briefed_awake_ms INTEGER NOT NULL DEFAULT 0;
DROP INDEX idx_recoveries_briefed;
-- Looked at with every activity, and nearly always empty.
CREATE INDEX idx_recoveries_open ON recoveries (mission_id) WHERE state <> 'resumed';

-- One uninterrupted silence of a mission: the key is what makes its event unique.
CREATE TABLE episodes (
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    last_seq INTEGER NOT NULL,
    detected_at TEXT NOT NULL,
    PRIMARY KEY (mission_id, last_seq)
) STRICT, WITHOUT ROWID;

-- What agents have begun and not finished: a mission that waits for a build is not silent.
CREATE TABLE tool_calls (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    started_at TEXT NOT NULL,
    started_awake_ms INTEGER NOT NULL,
    PRIMARY KEY (agent_id, call_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_tool_calls_age ON tool_calls (started_awake_ms);

-- What a forgetting still owes after a crash: targets not gone yet, and bytes not scrubbed yet.
CREATE TABLE forgetting (
    kind TEXT NOT NULL CHECK (kind IN ('mission', 'session', 'project', 'deletion', 'bytes')),
    name TEXT NOT NULL,
    -- What was found to go before any of it went: half of it would not be found so again.
    scope_json TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- What must not come back out of a file, by the digest of its id: the id is forgotten too.
CREATE TABLE forgotten (
    noun TEXT NOT NULL CHECK (noun IN ('mission')),
    digest TEXT NOT NULL,
    PRIMARY KEY (noun, digest)
) STRICT, WITHOUT ROWID;

-- Comparing rows with the names on disk reads this: no row, no file.
CREATE INDEX idx_checkpoints_names ON checkpoints (mission_id, id, version);

-- Pruning counts from the newest on, and asks for every event that is to go who has not read it.
DROP INDEX idx_checkpoints_live;
CREATE INDEX idx_checkpoints_live ON checkpoints (mission_id, seq, trigger)
    WHERE deleted_at IS NULL;
CREATE INDEX idx_cursors_stream ON cursors (stream, position);
