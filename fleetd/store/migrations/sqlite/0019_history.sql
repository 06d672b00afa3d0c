-- Agents, locks and edits as they were: a row each time that one changed, with the end of the log
-- and the time then. The newest row up to a moment is the state at it.
CREATE TABLE agent_history (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    role TEXT NOT NULL,
    harness TEXT,
    session_id TEXT,
    mission_id TEXT,
    cwd TEXT,
    status TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    succeeded_by TEXT,
    machine TEXT NOT NULL,
    needs TEXT,
    needs_since TEXT,
    needs_text TEXT,
    needs_reset_at TEXT,
    PRIMARY KEY (agent_id, seq, changed_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_agent_history_seq ON agent_history (seq);
-- A mission that is deleted is named nowhere.
CREATE INDEX idx_agent_history_mission ON agent_history (mission_id) WHERE mission_id IS NOT NULL;
CREATE TABLE lock_history (
    lock_id TEXT NOT NULL REFERENCES locks (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    mission_id TEXT,
    purpose TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    status TEXT NOT NULL,
    orphaned_at TEXT,
    mode TEXT NOT NULL,
    automatic INTEGER NOT NULL,
    PRIMARY KEY (lock_id, seq, changed_at)
) STRICT, WITHOUT ROWID;
-- Which locks ended after a place in the log.
CREATE INDEX idx_lock_history_ended ON lock_history (seq) WHERE status <> 'active';
CREATE INDEX idx_lock_history_mission ON lock_history (mission_id) WHERE mission_id IS NOT NULL;
CREATE TABLE edit_history (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    seq INTEGER NOT NULL,
    place TEXT NOT NULL,
    file TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (agent_id, path, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_edit_history_at ON edit_history (at);
INSERT INTO agent_history (agent_id, seq, changed_at, role, harness, session_id, mission_id, cwd, status,
        registered_at, last_seen_at, succeeded_by, machine, needs, needs_since, needs_text,
        needs_reset_at)
    SELECT id, coalesce((SELECT max(seq) FROM events), 0), '', role, harness, session_id,
        mission_id,
        cwd, status, registered_at, last_seen_at, succeeded_by, machine, needs, needs_since,
        needs_text, needs_reset_at FROM agents;
INSERT INTO lock_history (lock_id, seq, changed_at, mission_id, purpose, acquired_at, expires_at, timeout_ms,
        fencing_token, status, orphaned_at, mode, automatic)
    SELECT id, coalesce((SELECT max(seq) FROM events), 0), '', mission_id, purpose, acquired_at,
        expires_at, timeout_ms, fencing_token, status, orphaned_at, mode, automatic
        FROM locks WHERE status = 'active';
INSERT INTO edit_history (agent_id, path, seq, place, file, at)
    SELECT agent_id, path, coalesce((SELECT max(seq) FROM events), 0), place, file, at FROM edits;
-- What was before is not known.
INSERT INTO store_meta (key, value)
    SELECT 'fleet_from', CAST(max(seq) AS TEXT) FROM events HAVING max(seq) IS NOT NULL;
-- What a timeline marks of an event, and when, in ms since 1970; NULL for most events.
ALTER TABLE events ADD COLUMN mark TEXT;
ALTER TABLE events ADD COLUMN marked_ms INTEGER;
UPDATE events SET mark = CASE type WHEN 'window_compacted' THEN 'compaction'
        WHEN 'window_briefed' THEN 'briefing' WHEN 'fleet_checkpointed' THEN 'checkpoint'
        WHEN 'fleet_recovered' THEN 'recovery' WHEN 'error_reported' THEN 'error'
        WHEN 'agent_needs' THEN 'needs' ELSE 'mail' END,
    marked_ms = CAST(strftime('%s', timestamp) AS INTEGER) * 1000
        + CAST(substr(timestamp, 21, 3) AS INTEGER)
    WHERE type IN ('window_compacted', 'window_briefed', 'fleet_checkpointed', 'fleet_recovered',
        'error_reported', 'message_sent', 'message_delivered')
    OR (type = 'agent_needs' AND json_extract(data_json, '$.needs')
        NOT IN ('none', 'finished', 'background'));
-- A timeline reads its marks from this alone.
CREATE INDEX idx_events_marks ON events (marked_ms, mark, agent_id, mission_id, timestamp)
    WHERE mark IS NOT NULL;
-- Whose work falls into a span: what ended after its beginning, and what has not ended.
CREATE INDEX idx_sorties_worked ON sorties (completed_at, started_at)
    WHERE started_at IS NOT NULL;
-- Since when a lock is waited for, and whose it was then.
ALTER TABLE lock_waits ADD COLUMN began_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lock_waits ADD COLUMN waited_for TEXT;
