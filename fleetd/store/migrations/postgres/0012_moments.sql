-- The sorties of the same mission that are to be completed first.
ALTER TABLE sorties ADD COLUMN depends_on_json TEXT COLLATE "C" NOT NULL DEFAULT '[]';
-- Who waits for a sortie that goes: nearly always nobody.
CREATE INDEX idx_sorties_waiting ON sorties (mission_id) WHERE depends_on_json <> '[]';
-- What changed with an event in the state of its mission; NULL for nothing.
ALTER TABLE events ADD COLUMN state_json TEXT COLLATE "C";
-- The state of a mission at a moment: a checkpoint, and these after it.
CREATE INDEX idx_events_state ON events (mission_id, seq) WHERE state_json IS NOT NULL;
-- What was recorded before holds no changes.
INSERT INTO store_meta (key, value)
    SELECT 'moments_from', CAST(max(seq) AS TEXT) FROM events HAVING max(seq) IS NOT NULL;
