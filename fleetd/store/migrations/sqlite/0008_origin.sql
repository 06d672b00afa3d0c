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
-- The daily verification takes the files whose turn it is, those that never had one first.
ALTER TABLE checkpoints ADD COLUMN verified_at TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN verified_at TEXT NOT NULL DEFAULT '';
CREATE INDEX idx_checkpoints_verified ON checkpoints (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX idx_snapshots_verified ON snapshots (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;
-- A cursor that nobody uses keeps no events; it knows what it has not seen of those that went.
ALTER TABLE cursors ADD COLUMN missed_seq INTEGER NOT NULL DEFAULT 0;
