-- What requests to models took, told by the transcripts of sessions: a row per request. A request
-- that several files tell has one key.
CREATE TABLE usage_records (
    key TEXT COLLATE "C" PRIMARY KEY,
    at TEXT COLLATE "C" NOT NULL,
    harness TEXT COLLATE "C" NOT NULL,
    -- The agent of the session, also for its subagents.
    agent_id TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    sortie_id TEXT COLLATE "C",
    model TEXT COLLATE "C",
    -- What was neither read from a cache nor written to one.
    input BIGINT NOT NULL,
    -- With the reasoning.
    output BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    -- With what is kept for an hour, which costs more.
    cache_write BIGINT NOT NULL,
    cache_write_1h BIGINT NOT NULL,
    reasoning BIGINT NOT NULL
);
CREATE INDEX idx_usage_at ON usage_records (at, key);
CREATE INDEX idx_usage_agent ON usage_records (agent_id, at, key);
CREATE INDEX idx_usage_mission ON usage_records (mission_id, at, key)
    WHERE mission_id IS NOT NULL;

-- How far the transcripts of sessions are read.
CREATE TABLE transcripts (
    machine TEXT COLLATE "C" NOT NULL DEFAULT '',
    path TEXT COLLATE "C" NOT NULL,
    harness TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL DEFAULT 0,
    -- The digest of its beginning, which tells it from another file of its name.
    head TEXT COLLATE "C" NOT NULL DEFAULT '',
    -- What the reader has to know of the lines before.
    state_json TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    -- When a hook named it last. It is looked at for a while after that.
    noted_at TEXT COLLATE "C" NOT NULL,
    -- When a hook named it first: a fork's file is read behind the one that it copied.
    found_at TEXT COLLATE "C" NOT NULL,
    pending BIGINT NOT NULL DEFAULT 1,
    -- Bytes that were there and not read yet, and whether the file could not be opened.
    outstanding BIGINT NOT NULL DEFAULT 0,
    missing BIGINT NOT NULL DEFAULT 0,
    -- Lines that could not be read, that were too long, and requests that were counted already.
    broken BIGINT NOT NULL DEFAULT 0,
    long_lines BIGINT NOT NULL DEFAULT 0,
    repeated BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (machine, path, session_id)
);
CREATE INDEX idx_transcripts_pending ON transcripts (machine, found_at, path, session_id)
    WHERE pending = 1;
CREATE INDEX idx_transcripts_session ON transcripts (harness, session_id);

-- What a person wants a mission to take at most: tokens, or cents of a US dollar.
CREATE TABLE budgets (
    mission_id TEXT COLLATE "C" PRIMARY KEY REFERENCES missions (id) ON DELETE CASCADE,
    tokens BIGINT,
    usd_cents BIGINT,
    created_at TEXT COLLATE "C" NOT NULL
);
