-- Sessions of agent CLIs, and what their hooks delivered.

-- One window of one harness. "context" says what its agent still has in it: 'whole', about to be
-- compacted ('compacting'), compacted and not briefed ('lost'), or briefed since ('briefed').
CREATE TABLE sessions (
    harness TEXT NOT NULL,
    session_id TEXT NOT NULL,
    -- A subagent works inside its parent's session with a window of its own; '' is the parent.
    subagent TEXT NOT NULL DEFAULT '',
    agent_id TEXT NOT NULL,
    context TEXT NOT NULL DEFAULT 'whole'
        CHECK (context IN ('whole', 'compacting', 'lost', 'briefed')),
    -- The delivery whose reply held the briefing: it comes again when the reply was not read.
    briefed_by TEXT,
    transcript_mark TEXT,
    started_at TEXT NOT NULL,
    last_event_at TEXT NOT NULL,
    ended_at TEXT,
    PRIMARY KEY (harness, session_id, subagent)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_sessions_agent ON sessions (agent_id);

-- What was delivered lately: the id makes a retry harmless, the fingerprint a vendor's double.
CREATE TABLE hook_deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    harness TEXT NOT NULL,
    session_id TEXT,
    event TEXT,
    fingerprint TEXT,
    happened_ms INTEGER,
    received_at TEXT NOT NULL
) STRICT;
CREATE INDEX idx_hook_deliveries_age ON hook_deliveries (received_at);
CREATE INDEX idx_hook_deliveries_double ON hook_deliveries (fingerprint, happened_ms)
    WHERE fingerprint IS NOT NULL;
CREATE INDEX idx_hook_deliveries_session ON hook_deliveries (session_id, seq);

CREATE TABLE hook_counts (
    harness TEXT PRIMARY KEY,
    deliveries INTEGER NOT NULL DEFAULT 0,
    from_spool INTEGER NOT NULL DEFAULT 0,
    unfit INTEGER NOT NULL DEFAULT 0,
    last_event TEXT,
    last_event_at TEXT
) STRICT, WITHOUT ROWID;

-- What an agent's own plan told last, item by item, and the sorties that stand for it.
CREATE TABLE plan_items (
    -- No foreign key: a recovery can bring back a sortie that the plan has taken away.
    sortie_id TEXT PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    -- The harness's own name for the item.
    item_id TEXT,
    position INTEGER NOT NULL,
    text TEXT NOT NULL,
    -- Empty after a recovery changed the sortie, 'back' when it was dropped before that: then the
    -- plan is to be heard again.
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'in_progress', 'completed', 'dropped', 'back', '')),
    -- Whether the plan made the sortie; only then it may take it away.
    made INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_plan_items_agent ON plan_items (agent_id, mission_id, position)
    WHERE status <> 'dropped';
CREATE INDEX idx_plan_items_mission ON plan_items (mission_id);
