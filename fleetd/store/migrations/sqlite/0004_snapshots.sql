-- Run snapshots (source: snapshot-lifecycle).

-- One run: one session of one agent, or whatever a tool calls so. Its row is as old as its first
-- snapshot and goes with its last.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    agent_id TEXT,
    -- As the newest snapshot says, and in progress again once its agent goes on.
    status TEXT NOT NULL CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    -- When the newest was taken or joined last, or its agent went on: the heartbeat counts from it.
    snapshot_awake_ms INTEGER NOT NULL DEFAULT 0,
    -- The log up to here stands in a snapshot already.
    events_seq INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX idx_runs_agent ON runs (agent_id);
-- The timer asks for runs that are under way, the one that was recorded longest ago first.
CREATE INDEX idx_runs_due ON runs (snapshot_awake_ms) WHERE status = 'in_progress';

-- What a list shows stands before the document, as with checkpoints.
CREATE TABLE snapshots (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    timestamp TEXT NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('step_boundary', 'error_boundary', 'timer', 'manual')),
    status TEXT NOT NULL CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    seq INTEGER NOT NULL,
    step_id TEXT,
    step_ordinal INTEGER,
    step_status TEXT,
    window_pressure TEXT NOT NULL,
    outcome_count INTEGER NOT NULL,
    -- Whether the outcomes were gathered from the log, where they can be read as well.
    gathered INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL,
    version TEXT NOT NULL DEFAULT '1',
    backed_up_at TEXT,
    deleted_at TEXT,
    -- The history file in both its forms: the checksum of its bytes.
    file_digest TEXT NOT NULL,
    compressed_at TEXT,
    gzip_digest TEXT,
    gzip_bytes INTEGER,
    -- Beside the document: whose run it was, how full its window was, what whoever asked noted.
    agent_id TEXT,
    window_tokens INTEGER,
    window_size INTEGER,
    note TEXT,
    source_details_json TEXT NOT NULL DEFAULT '[]',
    warnings_json TEXT NOT NULL DEFAULT '[]',
    document_json TEXT NOT NULL
) STRICT;
-- Keeping a run's snapshots few and comparing their names reads this alone, and no document.
CREATE INDEX idx_snapshots_run ON snapshots
    (run_id, seq DESC, deleted_at, id, version, status, size_bytes);
CREATE INDEX idx_snapshots_seq ON snapshots (seq DESC);
CREATE INDEX idx_snapshots_outbox ON snapshots (id)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
-- What is old enough to be compressed.
CREATE INDEX idx_snapshots_plain ON snapshots (timestamp)
    WHERE compressed_at IS NULL AND deleted_at IS NULL;
-- Forgetting asks whose it was; of one that came back from its file only the step tells.
CREATE INDEX idx_snapshots_agent ON snapshots (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_snapshots_step ON snapshots (step_id) WHERE step_id IS NOT NULL;

-- Which missions a snapshot holds something of: it goes with each of them. An agent that goes from
-- one mission to the next takes its last commands and its locks along.
CREATE TABLE snapshot_missions (
    mission_id TEXT NOT NULL,
    snapshot_id TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    PRIMARY KEY (mission_id, snapshot_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_snapshot_missions_snapshot ON snapshot_missions (snapshot_id);

-- Sessions know how full their window is. A column cannot be added behind a table's own key.
CREATE TABLE sessions_new (
    harness TEXT NOT NULL,
    session_id TEXT NOT NULL,
    subagent TEXT NOT NULL DEFAULT '',
    agent_id TEXT NOT NULL,
    context TEXT NOT NULL DEFAULT 'whole'
        CHECK (context IN ('whole', 'compacting', 'lost', 'briefed')),
    briefed_by TEXT,
    transcript_mark TEXT,
    started_at TEXT NOT NULL,
    last_event_at TEXT NOT NULL,
    ended_at TEXT,
    window_tokens INTEGER,
    window_size INTEGER,
    PRIMARY KEY (harness, session_id, subagent)
) STRICT, WITHOUT ROWID;
INSERT INTO sessions_new (harness, session_id, subagent, agent_id, context, briefed_by,
    transcript_mark, started_at, last_event_at, ended_at)
    SELECT harness, session_id, subagent, agent_id, context, briefed_by, transcript_mark,
    started_at, last_event_at, ended_at FROM sessions;
DROP TABLE sessions;
ALTER TABLE sessions_new RENAME TO sessions;
CREATE INDEX idx_sessions_agent ON sessions (agent_id);
-- A run is called after its session.
CREATE INDEX idx_sessions_session ON sessions (session_id);

-- Runs are forgotten as missions are.
CREATE TABLE forgotten_new (
    noun TEXT NOT NULL CHECK (noun IN ('mission', 'run')),
    digest TEXT NOT NULL,
    -- Null is for ever. A session may go on: what its run records after this position is new.
    until_seq INTEGER,
    PRIMARY KEY (noun, digest)
) STRICT, WITHOUT ROWID;
INSERT INTO forgotten_new (noun, digest) SELECT noun, digest FROM forgotten;
DROP TABLE forgotten;
ALTER TABLE forgotten_new RENAME TO forgotten;
