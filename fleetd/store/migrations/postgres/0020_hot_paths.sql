-- The longest text without a wildcard in a lock's pattern: no file whose path lacks it is covered.
-- Empty for files and whole directories, and for patterns from before: any path may be covered.
ALTER TABLE locks ADD COLUMN literal TEXT COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX idx_locks_directory;
CREATE INDEX idx_locks_directory ON locks (directory, literal)
    WHERE status = 'active' AND directory IS NOT NULL;
-- Under the name that it has in SQLite.
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT strpos($1, $2)';
-- As before, in a language whose statements are planned once for a connection, not for each row.
CREATE OR REPLACE FUNCTION search_vector(words TEXT) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN (SELECT coalesce(string_agg('''' || word || ''':' || least(place, 16383), ' '),
        '')::tsvector
        FROM unnest(string_to_array(words, ' ')) WITH ORDINALITY AS each (word, place)
        WHERE word <> '');
END $$;
CREATE OR REPLACE FUNCTION search_parts(names TEXT) RETURNS TEXT[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT coalesce(array_agg(DISTINCT substr(names, place, 3)), '{}')
        FROM generate_series(1, length(names) - 2) AS place);
END $$;
-- Rows without the columns that activity moves all the time.
CREATE FUNCTION without_activity(told JSONB) RETURNS JSONB LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_agg(CASE WHEN jsonb_typeof(each) <> 'object' THEN each
        ELSE each - ARRAY['last_activity_at', 'last_activity_seq', 'last_deed_seq',
            'active_awake_ms', 'silent', 'last_seen_at', 'seen_awake_ms'] END), '[]')
    FROM jsonb_array_elements(told) AS each
$$;
-- Ends a transaction whose rule was given other rows than there are: a batch of one message.
CREATE FUNCTION expect(present JSON, expected JSONB) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    present := coalesce(present, '[]');
    IF present::jsonb <> expected
        AND without_activity(present::jsonb) <> without_activity(expected) THEN
        RAISE EXCEPTION 'rows have changed since they were read'
            USING ERRCODE = 'FL001', DETAIL = present::text;
    END IF;
END $$;
-- When an agent was seen last moves with each event. Few agents live: idx_agents_here finds them.
DROP INDEX idx_agents_unwatched;
-- So does when a mission was active last. An update that changes no indexed column writes no index
-- (HOT), if the page of the row has room.
DROP INDEX idx_missions_status;
CREATE INDEX idx_missions_status ON missions (status, silent);
-- A partial index counts too, for the rows that are not in it.
DROP INDEX idx_sessions_vanished;
CREATE INDEX idx_sessions_vanished ON sessions (vanished) WHERE vanished = 1;
-- The time of an edit changes with each change of its file, the ten minutes that it is in seldom do:
-- these are indexed.
ALTER TABLE edits ADD COLUMN period TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE edits SET period = left(at, 15);
DROP INDEX idx_edits_at;
CREATE INDEX idx_edits_period ON edits (period);
ALTER TABLE edits SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- Most locks are given back as they were taken. Their rows tell from which event to which they were
-- in force, and only those that change in between have a history: it begins with what they were.
ALTER TABLE locks ADD COLUMN granted_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE locks ADD COLUMN ended_seq BIGINT;
UPDATE locks SET granted_seq = coalesce((SELECT min(h.seq) FROM lock_history h
        WHERE h.lock_id = locks.id), 0),
    ended_seq = CASE WHEN status <> 'active' THEN coalesce((SELECT max(h.seq) FROM lock_history h
        WHERE h.lock_id = locks.id AND h.status <> 'active'), 0) END;
CREATE TEMP TABLE lock_history_before AS SELECT * FROM lock_history WHERE status = 'active';
DROP TABLE lock_history;
CREATE TABLE lock_history (
    lock_id TEXT COLLATE "C" NOT NULL REFERENCES locks (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    changed_at TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    purpose TEXT COLLATE "C" NOT NULL,
    acquired_at TEXT COLLATE "C" NOT NULL,
    -- NULL for a lease as it was granted: timeout_ms after acquired_at.
    expires_at TEXT COLLATE "C",
    timeout_ms BIGINT NOT NULL,
    fencing_token BIGINT NOT NULL,
    orphaned_at TEXT COLLATE "C",
    mode TEXT COLLATE "C" NOT NULL,
    automatic BIGINT NOT NULL,
    PRIMARY KEY (lock_id, seq, changed_at)
);
INSERT INTO lock_history (lock_id, seq, changed_at, mission_id, purpose, acquired_at, expires_at,
        timeout_ms, fencing_token, orphaned_at, mode, automatic)
    SELECT lock_id, seq, changed_at, mission_id, purpose, acquired_at, expires_at, timeout_ms,
        fencing_token, orphaned_at, mode, automatic
        FROM lock_history_before;
DROP TABLE lock_history_before;
-- When a person last spoke to an agent, among thousands of events.
CREATE INDEX idx_events_prompts ON events (agent_id, seq) WHERE type = 'prompt_submitted';
