-- Hand-offs: the work of an agent goes to a new session when that begins in time. Also those that
-- agents only ask for. Nobody misses one whose agent or mission is gone.
CREATE TABLE handoffs (
    id TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    successor_id TEXT COLLATE "C",
    harness TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    state TEXT COLLATE "C" NOT NULL CHECK (state IN
        ('asked', 'pending', 'completed', 'expired', 'cancelled', 'failed')),
    reason TEXT COLLATE "C",
    was_status TEXT COLLATE "C",
    checkpoint_id TEXT COLLATE "C",
    undo_checkpoint_id TEXT COLLATE "C",
    recovery_id TEXT COLLATE "C",
    created_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C",
    ended_at TEXT COLLATE "C"
);
CREATE INDEX idx_handoffs_agent ON handoffs (agent_id, state);
CREATE INDEX idx_handoffs_successor ON handoffs (successor_id) WHERE successor_id IS NOT NULL;
CREATE INDEX idx_handoffs_mission ON handoffs (mission_id);
CREATE INDEX idx_handoffs_asked ON handoffs (state) WHERE state = 'asked';
