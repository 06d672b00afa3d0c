-- A mission says who made it and how it ended: metadata, which clients write, no longer decides.
ALTER TABLE missions ADD COLUMN origin TEXT NOT NULL DEFAULT 'person'
    CHECK (origin IN ('person', 'session'));
ALTER TABLE missions ADD COLUMN closed_reason TEXT
    CHECK (closed_reason IN ('session', 'merged', 'person'));
UPDATE missions SET origin = 'session' WHERE json_extract(metadata_json, '$.automatic') IS 1;
UPDATE missions SET closed_reason =
    CASE WHEN origin = 'session' AND json_extract(metadata_json, '$.ended_with_session') = completed_at
        THEN 'session' ELSE 'person' END
    WHERE status IN ('completed', 'failed', 'cancelled');
-- What a take-over moved: so that undoing it can move it back.
ALTER TABLE recoveries ADD COLUMN taken_over_from TEXT;
ALTER TABLE recoveries ADD COLUMN left_mission_id TEXT;
CREATE INDEX idx_recoveries_left ON recoveries (mission_id) WHERE left_mission_id IS NOT NULL;
-- Which start of a machine's daemon has the id, and where its pids mean something: a copy of the
-- id is told from it.
ALTER TABLE machines ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
ALTER TABLE machines ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';
UPDATE missions SET metadata_json =
    json_remove(metadata_json, '$.automatic', '$.ended_with_session') WHERE origin = 'session';
-- What a waiting agent needs of a person, and since when.
ALTER TABLE agents ADD COLUMN needs TEXT;
ALTER TABLE agents ADD COLUMN needs_since TEXT;
-- The daily verification takes the files whose turn it is, those that never had one first.
ALTER TABLE checkpoints ADD COLUMN verified_at TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN verified_at TEXT NOT NULL DEFAULT '';
CREATE INDEX idx_checkpoints_verified ON checkpoints (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX idx_snapshots_verified ON snapshots (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;
-- A cursor that nobody uses keeps no events; it knows what it has not seen of those that went.
ALTER TABLE cursors ADD COLUMN missed_seq INTEGER NOT NULL DEFAULT 0;
-- Whose words a title is: other agents read it as a quotation.
ALTER TABLE missions ADD COLUMN author TEXT;
ALTER TABLE sorties ADD COLUMN author TEXT;
UPDATE missions SET author = (SELECT e.agent_id FROM events e WHERE e.mission_id = missions.id
    AND e.type = 'mission_created' ORDER BY e.seq LIMIT 1) WHERE origin = 'session';
UPDATE sorties SET author = (SELECT p.agent_id FROM plan_items p WHERE p.sortie_id = sorties.id
    AND p.made = 1);
