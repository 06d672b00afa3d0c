-- What an agent needs of a person, in words, and when a limit that it met ends.
ALTER TABLE agents ADD COLUMN needs_text TEXT COLLATE "C";
ALTER TABLE agents ADD COLUMN needs_reset_at TEXT COLLATE "C";
-- Who is lost already is lost for a person, too.
UPDATE agents SET needs = 'lost', needs_since = last_seen_at
    WHERE status = 'lost' AND succeeded_by IS NULL;
-- A request for permission that counts unless its agent goes on at once.
CREATE TABLE unconfirmed_asks (
    agent_id TEXT COLLATE "C" PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    since TEXT COLLATE "C" NOT NULL,
    text TEXT COLLATE "C",
    due_ms BIGINT NOT NULL
);
-- What runs for an agent beside its own turn, and what has run.
CREATE TABLE running_work (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    told TEXT COLLATE "C",
    began_at TEXT COLLATE "C" NOT NULL,
    seen_at TEXT COLLATE "C" NOT NULL,
    ended_at TEXT COLLATE "C",
    output TEXT COLLATE "C",
    PRIMARY KEY (agent_id, id)
);
-- When a session of a harness last told more than its beginning or its end, and its version.
ALTER TABLE hook_counts ADD COLUMN told_at TEXT COLLATE "C";
ALTER TABLE hook_counts ADD COLUMN version TEXT COLLATE "C";
UPDATE hook_counts SET told_at = last_event_at;
-- Names that hooks told: the kinds of events, and what no adapter knows.
CREATE TABLE hook_names (
    harness TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL
        CHECK (kind IN ('event', 'unknown_event', 'unknown_field', 'unfit')),
    name TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    last_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (harness, kind, name)
);
-- Sessions that began since their harness told anything else.
CREATE INDEX idx_sessions_begun ON sessions (harness, started_at) WHERE subagent = '';
-- The files that agents changed within the last hour: which two agents changed one.
CREATE TABLE edits (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT COLLATE "C" NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (agent_id, path)
);
CREATE INDEX idx_edits_place ON edits (place);
CREATE INDEX idx_edits_path ON edits (path);
CREATE INDEX idx_edits_at ON edits (at);
-- What an agent is told, or was told, of the others' edits: each pair of agents of a file once.
CREATE TABLE edit_conflicts (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    other_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT COLLATE "C" NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    other_path TEXT COLLATE "C" NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    told BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, other_id, path)
);
CREATE INDEX idx_edit_conflicts_other ON edit_conflicts (other_id);
CREATE INDEX idx_edit_conflicts_untold ON edit_conflicts (agent_id, told);
