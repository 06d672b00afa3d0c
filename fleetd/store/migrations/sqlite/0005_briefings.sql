-- What a recovery leaves for an agent's sorties stands once, and not with each of them.
CREATE TABLE briefings (
    id INTEGER PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    context_json TEXT NOT NULL
) STRICT;
CREATE INDEX idx_briefings_mission ON briefings (mission_id);

ALTER TABLE sorties ADD COLUMN briefing_id INTEGER;
INSERT INTO briefings (id, mission_id, context_json)
    SELECT rowid, mission_id, recovery_context_json FROM sorties
    WHERE recovery_context_json IS NOT NULL;
UPDATE sorties SET briefing_id = rowid WHERE recovery_context_json IS NOT NULL;
ALTER TABLE sorties DROP COLUMN recovery_context_json;
