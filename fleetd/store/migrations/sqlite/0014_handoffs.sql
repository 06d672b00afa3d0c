-- Hand-offs: the work of an agent goes to a new session when that begins in time. Also those that
-- agents only ask for. Nobody misses one whose agent or mission is gone.
CREATE TABLE handoffs (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    successor_id TEXT,
    harness TEXT NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    state TEXT NOT NULL CHECK (state IN
        ('asked', 'pending', 'completed', 'expired', 'cancelled', 'failed')),
    reason TEXT,
    was_status TEXT,
    checkpoint_id TEXT,
    undo_checkpoint_id TEXT,
    recovery_id TEXT,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    ended_at TEXT
) STRICT;
CREATE INDEX idx_handoffs_agent ON handoffs (agent_id, state);
CREATE INDEX idx_handoffs_successor ON handoffs (successor_id) WHERE successor_id IS NOT NULL;
CREATE INDEX idx_handoffs_mission ON handoffs (mission_id);
CREATE INDEX idx_handoffs_asked ON handoffs (state) WHERE state = 'asked';
