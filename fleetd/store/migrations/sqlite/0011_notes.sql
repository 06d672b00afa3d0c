-- Notes that last: appended, withdrawn with a reason, never edited.
CREATE TABLE notes (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('decision', 'ruled-out', 'constraint', 'finding')),
    text TEXT NOT NULL,
    because TEXT,
    path TEXT,
    origin TEXT NOT NULL CHECK (origin IN ('person', 'agent', 'fact')),
    agent_id TEXT,
    created_at TEXT NOT NULL,
    pinned_at TEXT,
    withdrawn_at TEXT,
    withdrawn_by TEXT,
    withdrawn_reason TEXT,
    came_from TEXT
) STRICT;
CREATE INDEX idx_notes_standing ON notes (mission_id, seq) WHERE withdrawn_at IS NULL;
CREATE INDEX idx_notes_mission ON notes (mission_id, seq);
CREATE INDEX idx_notes_seq ON notes (seq);
CREATE INDEX idx_notes_agent ON notes (agent_id, seq) WHERE agent_id IS NOT NULL;
-- A note is no work: what was done before it is the last action. The types are NO_DEEDS in
-- domain/core/event_log.
DROP INDEX idx_events_deeds;
CREATE INDEX idx_events_deeds ON events (mission_id, agent_id, seq)
    WHERE activity = 1 AND agent_id IS NOT NULL AND type NOT IN (
        'fleet_checkpointed', 'message_acked', 'agent_registered', 'agent_deregistered',
        'agent_paused', 'agent_resumed', 'lock_renewed', 'tool_started', 'tool_finished',
        'note_added', 'note_withdrawn');
-- Whether hooks give the agents of a mission their briefing; without one they are the control group.
ALTER TABLE missions ADD COLUMN briefing TEXT NOT NULL DEFAULT 'on'
    CHECK (briefing IN ('on', 'off'));
