-- What an agent needs of a person, in words, and when a limit that it met ends.
ALTER TABLE agents ADD COLUMN needs_text TEXT COLLATE "C";
ALTER TABLE agents ADD COLUMN needs_reset_at TEXT COLLATE "C";
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
