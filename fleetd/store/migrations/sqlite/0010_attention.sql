-- What an agent needs of a person, in words, and when a limit that it met ends.
ALTER TABLE agents ADD COLUMN needs_text TEXT;
ALTER TABLE agents ADD COLUMN needs_reset_at TEXT;
-- A request for permission that counts unless its agent goes on at once.
CREATE TABLE unconfirmed_asks (
    agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    since TEXT NOT NULL,
    text TEXT,
    due_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- What runs for an agent beside its own turn, and what has run.
CREATE TABLE running_work (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    told TEXT,
    began_at TEXT NOT NULL,
    seen_at TEXT NOT NULL,
    ended_at TEXT,
    output TEXT,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;
