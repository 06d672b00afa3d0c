-- What requests to models took, told by the transcripts of sessions: a row per request. A request
-- that several files tell has one key.
CREATE TABLE usage_records (
    key TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    harness TEXT NOT NULL,
    -- The agent of the session, also for its subagents.
    agent_id TEXT NOT NULL,
    mission_id TEXT,
    sortie_id TEXT,
    model TEXT,
    -- What was neither read from a cache nor written to one.
    input INTEGER NOT NULL,
    -- With the reasoning.
    output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    -- With what is kept for an hour, which costs more.
    cache_write INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    reasoning INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_usage_at ON usage_records (at, key);
CREATE INDEX idx_usage_agent ON usage_records (agent_id, at, key);
CREATE INDEX idx_usage_mission ON usage_records (mission_id, at, key)
    WHERE mission_id IS NOT NULL;

-- How far the transcripts of sessions are read.
CREATE TABLE transcripts (
    machine TEXT NOT NULL DEFAULT '',
    path TEXT NOT NULL,
    harness TEXT NOT NULL,
    session_id TEXT NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    -- The digest of its beginning, which tells it from another file of its name.
    head TEXT NOT NULL DEFAULT '',
    -- What the reader has to know of the lines before.
    state_json TEXT NOT NULL DEFAULT '{}',
    -- When a hook named it last. It is looked at for a while after that.
    noted_at TEXT NOT NULL,
    -- When a hook named it first: a fork's file is read behind the one that it copied.
    found_at TEXT NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1,
    -- Bytes that were there and not read yet, and whether the file could not be opened.
    outstanding INTEGER NOT NULL DEFAULT 0,
    missing INTEGER NOT NULL DEFAULT 0,
    -- Lines that could not be read, that were too long, and requests that were counted already.
    broken INTEGER NOT NULL DEFAULT 0,
    long_lines INTEGER NOT NULL DEFAULT 0,
    repeated INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (machine, path, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_transcripts_pending ON transcripts (machine, found_at, path, session_id)
    WHERE pending = 1;
CREATE INDEX idx_transcripts_session ON transcripts (harness, session_id);

-- What a person wants a mission to take at most: tokens, or cents of a US dollar.
CREATE TABLE budgets (
    mission_id TEXT PRIMARY KEY REFERENCES missions (id) ON DELETE CASCADE,
    tokens INTEGER,
    usd_cents INTEGER,
    created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
