-- The longest text without a wildcard in a lock's pattern: no file whose path lacks it is covered.
-- Empty for files and whole directories, and for patterns from before: any path may be covered.
ALTER TABLE locks ADD COLUMN literal TEXT NOT NULL DEFAULT '';
DROP INDEX idx_locks_directory;
CREATE INDEX idx_locks_directory ON locks (directory, literal)
    WHERE status = 'active' AND directory IS NOT NULL;
-- When an agent was seen last moves with each event. Few agents live: idx_agents_here finds them.
DROP INDEX idx_agents_unwatched;
-- The time of an edit changes with each change of its file, the ten minutes that it is in seldom do:
-- these are indexed.
ALTER TABLE edits ADD COLUMN period TEXT NOT NULL DEFAULT '';
UPDATE edits SET period = substr(at, 1, 15);
DROP INDEX idx_edits_at;
CREATE INDEX idx_edits_period ON edits (period);
-- As in a shared store.
DROP INDEX idx_sessions_vanished;
CREATE INDEX idx_sessions_vanished ON sessions (vanished) WHERE vanished = 1;
-- Most locks are given back as they were taken. Their rows tell from which event to which they were
-- in force, and only those that change in between have a history: it begins with what they were.
ALTER TABLE locks ADD COLUMN granted_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE locks ADD COLUMN ended_seq INTEGER;
UPDATE locks SET granted_seq = coalesce((SELECT min(h.seq) FROM lock_history h
        WHERE h.lock_id = locks.id), 0),
    ended_seq = CASE WHEN status <> 'active' THEN coalesce((SELECT max(h.seq) FROM lock_history h
        WHERE h.lock_id = locks.id AND h.status <> 'active'), 0) END;
ALTER TABLE lock_history RENAME TO lock_history_before;
CREATE TABLE lock_history (
    lock_id TEXT NOT NULL REFERENCES locks (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    mission_id TEXT,
    purpose TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    -- NULL for a lease as it was granted: timeout_ms after acquired_at.
    expires_at TEXT,
    timeout_ms INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    orphaned_at TEXT,
    mode TEXT NOT NULL,
    automatic INTEGER NOT NULL,
    PRIMARY KEY (lock_id, seq, changed_at)
) STRICT, WITHOUT ROWID;
INSERT INTO lock_history (lock_id, seq, changed_at, mission_id, purpose, acquired_at, expires_at,
        timeout_ms, fencing_token, orphaned_at, mode, automatic)
    SELECT lock_id, seq, changed_at, mission_id, purpose, acquired_at, expires_at, timeout_ms,
        fencing_token, orphaned_at, mode, automatic
        FROM lock_history_before WHERE status = 'active';
DROP TABLE lock_history_before;
-- When a person last spoke to an agent, among thousands of events.
CREATE INDEX idx_events_prompts ON events (agent_id, seq) WHERE type = 'prompt_submitted';
