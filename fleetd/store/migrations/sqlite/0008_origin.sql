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
UPDATE missions SET metadata_json =
    json_remove(metadata_json, '$.automatic', '$.ended_with_session') WHERE origin = 'session';
-- What a waiting agent needs of a person, and since when.
ALTER TABLE agents ADD COLUMN needs TEXT;
ALTER TABLE agents ADD COLUMN needs_since TEXT;
