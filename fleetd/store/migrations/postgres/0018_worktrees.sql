-- The root of the work tree that a session began in; NULL outside of one, and where nobody told.
ALTER TABLE sessions ADD COLUMN began_in TEXT COLLATE "C";
UPDATE sessions SET began_in = worktree WHERE directory = cwd;
-- The files that agents changed in other work trees: of each tree an agent is told once.
CREATE TABLE outside_edits (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT COLLATE "C" NOT NULL,
    worktree TEXT COLLATE "C" NOT NULL,
    began_in TEXT COLLATE "C" NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    told BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, path)
);
CREATE INDEX idx_outside_edits_at ON outside_edits (at);
CREATE INDEX idx_outside_edits_untold ON outside_edits (agent_id) WHERE told = 0;
-- The files that an open call is about to change, as a JSON array of the paths of locks.
ALTER TABLE tool_calls ADD COLUMN files_json TEXT COLLATE "C" NOT NULL DEFAULT '[]';
CREATE INDEX idx_tool_calls_files ON tool_calls (started_at) WHERE files_json <> '[]';
