-- Several machines may share one store. Whose something is stands beside it: '' in a store that one
-- machine has to itself.

-- The machines of a shared store: one daemon of one user on one computer each.
CREATE TABLE machines (
    id TEXT PRIMARY KEY,
    -- What its computer is called, for people.
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('here', 'left', 'lost')),
    started_at TEXT NOT NULL,
    -- When its daemon told last that it lives.
    heard_at TEXT NOT NULL,
    heard_awake_ms INTEGER NOT NULL,
    -- Since when it has told so without a break: as long its agents could make themselves heard.
    since_awake_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where its project_dir is a directory.
ALTER TABLE missions ADD COLUMN machine TEXT NOT NULL DEFAULT '';
-- What its project is called on every machine; NULL where it has no such name, and where one machine
-- has the store to itself.
ALTER TABLE missions ADD COLUMN project TEXT;
-- Where its process runs.
ALTER TABLE agents ADD COLUMN machine TEXT NOT NULL DEFAULT '';
-- Where its client waits.
ALTER TABLE lock_waits ADD COLUMN machine TEXT NOT NULL DEFAULT '';
-- Where its file lies.
ALTER TABLE checkpoints ADD COLUMN machine TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN machine TEXT NOT NULL DEFAULT '';
-- Which one is at it: no other takes it up while that one is heard of.
ALTER TABLE forgetting ADD COLUMN machine TEXT NOT NULL DEFAULT '';

-- The same path is another directory on another machine.
DROP INDEX idx_missions_project;
CREATE INDEX idx_missions_project ON missions (machine, project_dir, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
DROP INDEX idx_missions_place;
CREATE INDEX idx_missions_place ON missions (machine, project_dir, status, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
CREATE INDEX idx_missions_named ON missions (project, status) WHERE project IS NOT NULL;

-- Each machine watches its own processes, and works off its own files.
DROP INDEX idx_agents_process;
CREATE INDEX idx_agents_process ON agents (machine, id) WHERE pid IS NOT NULL;
DROP INDEX idx_checkpoints_outbox;
CREATE INDEX idx_checkpoints_outbox
    ON checkpoints (machine, seq, id, mission_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
DROP INDEX idx_checkpoints_names;
CREATE INDEX idx_checkpoints_names ON checkpoints (mission_id, id, version, machine);
DROP INDEX idx_snapshots_outbox;
CREATE INDEX idx_snapshots_outbox ON snapshots (machine, seq, id, run_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
DROP INDEX idx_snapshots_run;
CREATE INDEX idx_snapshots_run ON snapshots
    (run_id, seq DESC, deleted_at, id, version, status, size_bytes, machine);
