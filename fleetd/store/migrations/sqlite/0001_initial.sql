-- The first schema. Times are ISO 8601 UTC text of fixed width, so text order is time order.

CREATE TABLE store_meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Counters that must never go back, such as the fencing tokens.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE missions (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled')),
    priority TEXT NOT NULL DEFAULT 'medium'
        CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    project_dir TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    last_activity_at TEXT,
    last_activity_seq INTEGER NOT NULL DEFAULT 0,
    milestone INTEGER NOT NULL DEFAULT 0,
    total_sorties INTEGER NOT NULL DEFAULT 0,
    completed_sorties INTEGER NOT NULL DEFAULT 0,
    metadata_json TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX idx_missions_status ON missions (status);
-- The silence scan reads this and nothing else: it must not grow with events or old missions.
CREATE INDEX idx_missions_silence ON missions (last_activity_at) WHERE status = 'in_progress';

CREATE TABLE sorties (
    id TEXT PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'assigned', 'in_progress', 'blocked', 'completed', 'failed')),
    priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    assigned_to TEXT,
    files_json TEXT NOT NULL DEFAULT '[]',
    progress INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    progress_notes TEXT,
    blocked_reason TEXT,
    result TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    recovery_context_json TEXT
) STRICT;
CREATE INDEX idx_sorties_mission ON sorties (mission_id, position);
CREATE INDEX idx_sorties_status ON sorties (mission_id, status);

CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('dispatch', 'specialist')),
    harness TEXT,
    session_id TEXT,
    pid INTEGER,
    pid_started TEXT,
    mission_id TEXT REFERENCES missions (id) ON DELETE SET NULL,
    cwd TEXT,
    status TEXT NOT NULL CHECK (status IN ('active', 'waiting', 'idle', 'lost', 'gone')),
    registered_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    succeeded_by TEXT,
    note_json TEXT
) STRICT;
CREATE INDEX idx_agents_mission ON agents (mission_id);

CREATE TABLE locks (
    id TEXT PRIMARY KEY,
    file TEXT NOT NULL,
    normalized_path TEXT NOT NULL,
    held_by TEXT NOT NULL,
    mission_id TEXT REFERENCES missions (id) ON DELETE SET NULL,
    purpose TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'released', 'expired', 'forced')),
    released_at TEXT
) STRICT;
-- One active lock per file: the index, not a check before the insert, makes it true.
CREATE UNIQUE INDEX idx_locks_active ON locks (normalized_path) WHERE status = 'active';
CREATE INDEX idx_locks_holder ON locks (held_by) WHERE status = 'active';
CREATE INDEX idx_locks_mission ON locks (mission_id) WHERE status = 'active';

-- Those who wait for a lock, served in order of id. A row lives as long as its client waits.
CREATE TABLE lock_waits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    normalized_path TEXT NOT NULL,
    file TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    mission_id TEXT,
    purpose TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    lock_id TEXT
) STRICT;
CREATE INDEX idx_lock_waits_path ON lock_waits (normalized_path, id);

CREATE TABLE messages (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    mission_id TEXT REFERENCES missions (id) ON DELETE CASCADE,
    thread_id TEXT,
    sender TEXT NOT NULL,
    to_json TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT,
    priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    sent_at TEXT NOT NULL
) STRICT;
CREATE INDEX idx_messages_mission ON messages (mission_id, seq);

CREATE TABLE deliveries (
    message_id TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'delivered', 'acked', 'failed')),
    delivered_at TEXT,
    acked_at TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_deliveries_inbox ON deliveries (agent_id, status, seq);
CREATE INDEX idx_deliveries_queued ON deliveries (message_id) WHERE status = 'queued';

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    stream TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    mission_id TEXT,
    agent_id TEXT,
    activity INTEGER NOT NULL,
    data_json TEXT NOT NULL
) STRICT;
CREATE INDEX idx_events_mission ON events (mission_id, seq);
CREATE INDEX idx_events_type ON events (type, seq);
CREATE INDEX idx_events_kind ON events (mission_id, type, seq);
CREATE INDEX idx_events_agent ON events (agent_id, seq) WHERE agent_id IS NOT NULL;

CREATE TABLE cursors (
    consumer TEXT NOT NULL,
    stream TEXT NOT NULL,
    position INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (consumer, stream)
) STRICT, WITHOUT ROWID;

-- What a list shows stands before the JSON, so that listing never reads overflow pages.
CREATE TABLE checkpoints (
    id TEXT PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    timestamp TEXT NOT NULL,
    trigger TEXT NOT NULL CHECK (trigger IN ('progress', 'error', 'manual', 'compaction')),
    trigger_details TEXT,
    progress_percent INTEGER NOT NULL CHECK (progress_percent >= 0 AND progress_percent <= 100),
    seq INTEGER NOT NULL,
    undo INTEGER NOT NULL DEFAULT 0,
    sortie_count INTEGER NOT NULL,
    lock_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL,
    state_digest TEXT NOT NULL,
    consumed_at TEXT,
    backed_up_at TEXT,
    deleted_at TEXT,
    created_by TEXT NOT NULL,
    version TEXT NOT NULL DEFAULT '1.0.0',
    source_details_json TEXT NOT NULL DEFAULT '[]',
    warnings_json TEXT NOT NULL DEFAULT '[]',
    mission_json TEXT,
    recovery_context_json TEXT NOT NULL,
    locks_json TEXT NOT NULL,
    messages_json TEXT NOT NULL,
    sorties_json TEXT NOT NULL
) STRICT;
-- The newest is the one with the highest seq: a clock can be stepped back, the log cannot.
CREATE INDEX idx_checkpoints_mission ON checkpoints (mission_id, seq DESC);
CREATE INDEX idx_checkpoints_trigger ON checkpoints (trigger);
CREATE INDEX idx_checkpoints_timestamp ON checkpoints (timestamp);
CREATE INDEX idx_checkpoints_seq ON checkpoints (seq DESC);
-- Counting reads this; a row of the table is a page or more.
CREATE INDEX idx_checkpoints_live ON checkpoints (mission_id, trigger) WHERE deleted_at IS NULL;
-- The row is the outbox: what still needs a file written, or a file removed.
CREATE INDEX idx_checkpoints_outbox ON checkpoints (id)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;

CREATE TABLE recoveries (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    checkpoint_id TEXT NOT NULL,
    undo_checkpoint_id TEXT,
    agent_id TEXT,
    requested_by TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('mission', 'agent')),
    state TEXT NOT NULL CHECK (state IN ('pending', 'briefed', 'resumed', 'unconfirmed')),
    created_at TEXT NOT NULL,
    briefed_at TEXT,
    resumed_at TEXT
) STRICT;
CREATE INDEX idx_recoveries_mission ON recoveries (mission_id, seq);
-- Looked at with every activity, and nearly always empty.
CREATE INDEX idx_recoveries_briefed ON recoveries (mission_id) WHERE state = 'briefed';

CREATE TABLE idempotency_keys (
    method TEXT NOT NULL,
    key TEXT NOT NULL,
    params_digest TEXT NOT NULL,
    result_json TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (method, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_idempotency_keys_age ON idempotency_keys (created_at);
