-- Agents, locks and edits as they were: a row each time that one changed, with the end of the log
-- and the time then. The newest row up to a moment is the state at it.
CREATE TABLE agent_history (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    harness TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    mission_id TEXT COLLATE "C",
    cwd TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    registered_at TEXT COLLATE "C" NOT NULL,
    last_seen_at TEXT COLLATE "C" NOT NULL,
    succeeded_by TEXT COLLATE "C",
    machine TEXT COLLATE "C" NOT NULL,
    needs TEXT COLLATE "C",
    needs_since TEXT COLLATE "C",
    needs_text TEXT COLLATE "C",
    needs_reset_at TEXT COLLATE "C",
    PRIMARY KEY (agent_id, seq, changed_at)
);
CREATE INDEX idx_agent_history_seq ON agent_history (seq);
-- A mission that is deleted is named nowhere.
CREATE INDEX idx_agent_history_mission ON agent_history (mission_id) WHERE mission_id IS NOT NULL;
CREATE TABLE lock_history (
    lock_id TEXT COLLATE "C" NOT NULL REFERENCES locks (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    purpose TEXT COLLATE "C" NOT NULL,
    acquired_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    timeout_ms BIGINT NOT NULL,
    fencing_token BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    orphaned_at TEXT COLLATE "C",
    mode TEXT COLLATE "C" NOT NULL,
    automatic BIGINT NOT NULL,
    PRIMARY KEY (lock_id, seq, changed_at)
);
-- Which locks ended after a place in the log.
CREATE INDEX idx_lock_history_ended ON lock_history (seq) WHERE status <> 'active';
CREATE INDEX idx_lock_history_mission ON lock_history (mission_id) WHERE mission_id IS NOT NULL;
CREATE TABLE edit_history (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (agent_id, path, seq)
);
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
ALTER TABLE events ADD COLUMN mark TEXT COLLATE "C";
ALTER TABLE events ADD COLUMN marked_ms BIGINT;
UPDATE events SET mark = CASE type WHEN 'window_compacted' THEN 'compaction'
        WHEN 'window_briefed' THEN 'briefing' WHEN 'fleet_checkpointed' THEN 'checkpoint'
        WHEN 'fleet_recovered' THEN 'recovery' WHEN 'error_reported' THEN 'error'
        WHEN 'agent_needs' THEN 'needs' ELSE 'mail' END,
    marked_ms = CAST(extract(epoch FROM CAST(timestamp AS TIMESTAMPTZ)) * 1000 AS BIGINT)
    WHERE type IN ('window_compacted', 'window_briefed', 'fleet_checkpointed', 'fleet_recovered',
        'error_reported', 'message_sent', 'message_delivered')
    OR (type = 'agent_needs' AND CAST(data_json AS JSON) ->> 'needs'
        NOT IN ('none', 'finished', 'background'));
-- A timeline reads its marks from this alone.
CREATE INDEX idx_events_marks ON events (marked_ms, mark, agent_id, mission_id, timestamp)
    WHERE mark IS NOT NULL;
-- Whose work falls into a span: what ended after its beginning, and what has not ended.
CREATE INDEX idx_sorties_worked ON sorties (completed_at, started_at)
    WHERE started_at IS NOT NULL;
-- Since when a lock is waited for, and whose it was then.
ALTER TABLE lock_waits ADD COLUMN began_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE lock_waits ADD COLUMN waited_for TEXT COLLATE "C";
