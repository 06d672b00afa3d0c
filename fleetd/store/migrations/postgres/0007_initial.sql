-- The schema as SQLite has it with seven migrations; a test compares the two, and lists in what
-- they may differ. What tables and columns are for is said in ../sqlite/schema.sql.
--
-- Everything lies in the schema that search_path names. Text sorts by its bytes, as in SQLite.
-- What is in an index is at most 2,700 bytes long here.

CREATE TABLE store_meta (
    key TEXT COLLATE "C" PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE counters (
    name TEXT COLLATE "C" PRIMARY KEY,
    value BIGINT NOT NULL
);

CREATE TABLE tallies (
    what TEXT COLLATE "C" NOT NULL,
    part TEXT COLLATE "C" NOT NULL DEFAULT '',
    number BIGINT NOT NULL,
    PRIMARY KEY (what, part)
);

CREATE TABLE machines (
    id TEXT COLLATE "C" PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('here', 'left', 'lost')),
    started_at TEXT COLLATE "C" NOT NULL,
    heard_at TEXT COLLATE "C" NOT NULL,
    heard_awake_ms BIGINT NOT NULL,
    since_awake_ms BIGINT NOT NULL
);

CREATE TABLE missions (
    id TEXT COLLATE "C" PRIMARY KEY,
    title TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled')),
    priority TEXT COLLATE "C" NOT NULL DEFAULT 'medium'
        CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    project_dir TEXT COLLATE "C",
    created_at TEXT COLLATE "C" NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    started_at TEXT COLLATE "C",
    completed_at TEXT COLLATE "C",
    last_activity_at TEXT COLLATE "C",
    last_activity_seq BIGINT NOT NULL DEFAULT 0,
    milestone BIGINT NOT NULL DEFAULT 0,
    total_sorties BIGINT NOT NULL DEFAULT 0,
    completed_sorties BIGINT NOT NULL DEFAULT 0,
    metadata_json TEXT COLLATE "C" NOT NULL DEFAULT '{}',
    active_awake_ms BIGINT NOT NULL DEFAULT 0,
    silent BIGINT NOT NULL DEFAULT 0,
    machine TEXT COLLATE "C" NOT NULL DEFAULT '',
    project TEXT COLLATE "C"
);
CREATE INDEX idx_missions_status ON missions (status, silent, active_awake_ms);
CREATE INDEX idx_missions_created ON missions (created_at DESC, id);
CREATE INDEX idx_missions_listed ON missions (status, created_at DESC, id);
CREATE INDEX idx_missions_project ON missions (machine, project_dir, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
CREATE INDEX idx_missions_place ON missions (machine, project_dir, status, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
CREATE INDEX idx_missions_named ON missions (project, status) WHERE project IS NOT NULL;

CREATE TABLE sorties (
    id TEXT COLLATE "C" PRIMARY KEY,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL
        CHECK (status IN ('pending', 'assigned', 'in_progress', 'blocked', 'completed', 'failed')),
    priority TEXT COLLATE "C" NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    assigned_to TEXT COLLATE "C",
    files_json TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    progress BIGINT NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    progress_notes TEXT COLLATE "C",
    blocked_reason TEXT COLLATE "C",
    result TEXT COLLATE "C",
    created_at TEXT COLLATE "C" NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    started_at TEXT COLLATE "C",
    completed_at TEXT COLLATE "C",
    briefing_id BIGINT
);
CREATE INDEX idx_sorties_mission ON sorties (mission_id, position);
CREATE INDEX idx_sorties_status ON sorties (mission_id, status);

CREATE TABLE briefings (
    id BIGINT PRIMARY KEY,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    context_json TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_briefings_mission ON briefings (mission_id);

CREATE TABLE agents (
    id TEXT COLLATE "C" PRIMARY KEY,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('dispatch', 'specialist')),
    harness TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    pid BIGINT,
    pid_started TEXT COLLATE "C",
    mission_id TEXT COLLATE "C" REFERENCES missions (id) ON DELETE SET NULL,
    cwd TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL
        CHECK (status IN ('active', 'waiting', 'idle', 'lost', 'gone')),
    registered_at TEXT COLLATE "C" NOT NULL,
    last_seen_at TEXT COLLATE "C" NOT NULL,
    succeeded_by TEXT COLLATE "C",
    note_json TEXT COLLATE "C",
    seen_awake_ms BIGINT NOT NULL DEFAULT 0,
    machine TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX idx_agents_mission ON agents (mission_id);
CREATE INDEX idx_agents_unwatched ON agents (seen_awake_ms) WHERE status = 'active' AND pid IS NULL;
CREATE INDEX idx_agents_succeeded ON agents (succeeded_by) WHERE succeeded_by IS NOT NULL;
CREATE INDEX idx_agents_here ON agents (status, id) WHERE status <> 'gone';
CREATE INDEX idx_agents_process ON agents (machine, id) WHERE pid IS NOT NULL;

CREATE TABLE locks (
    id TEXT COLLATE "C" PRIMARY KEY,
    file TEXT COLLATE "C" NOT NULL,
    normalized_path TEXT COLLATE "C" NOT NULL,
    held_by TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C" REFERENCES missions (id) ON DELETE SET NULL,
    purpose TEXT COLLATE "C" NOT NULL,
    acquired_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    timeout_ms BIGINT NOT NULL,
    fencing_token BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('active', 'released', 'expired', 'forced')),
    released_at TEXT COLLATE "C",
    orphaned_at TEXT COLLATE "C"
);
CREATE UNIQUE INDEX idx_locks_active ON locks (normalized_path) WHERE status = 'active';
CREATE INDEX idx_locks_holder ON locks (held_by, status);
CREATE INDEX idx_locks_mission ON locks (mission_id, status);
CREATE INDEX idx_locks_ended ON locks (released_at) WHERE status <> 'active';

CREATE TABLE lock_waits (
    id BIGINT PRIMARY KEY,
    normalized_path TEXT COLLATE "C" NOT NULL,
    file TEXT COLLATE "C" NOT NULL,
    agent_id TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    purpose TEXT COLLATE "C" NOT NULL,
    timeout_ms BIGINT NOT NULL,
    lock_id TEXT COLLATE "C",
    machine TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX idx_lock_waits_path ON lock_waits (normalized_path, id);

CREATE TABLE messages (
    id TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT NOT NULL,
    mission_id TEXT COLLATE "C" REFERENCES missions (id) ON DELETE CASCADE,
    thread_id TEXT COLLATE "C",
    sender TEXT COLLATE "C" NOT NULL,
    to_json TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    body TEXT COLLATE "C",
    priority TEXT COLLATE "C" NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    sent_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_messages_mission ON messages (mission_id, seq);
CREATE INDEX idx_messages_seq ON messages (seq);

CREATE TABLE deliveries (
    message_id TEXT COLLATE "C" NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    agent_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL CHECK (status IN ('queued', 'delivered', 'acked', 'failed')),
    delivered_at TEXT COLLATE "C",
    acked_at TEXT COLLATE "C",
    attempts BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, agent_id)
);
CREATE INDEX idx_deliveries_inbox ON deliveries (agent_id, status, seq);
CREATE INDEX idx_deliveries_queued ON deliveries (message_id) WHERE status = 'queued';

CREATE TABLE events (
    seq BIGINT PRIMARY KEY,
    type TEXT COLLATE "C" NOT NULL,
    stream TEXT COLLATE "C" NOT NULL,
    timestamp TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    agent_id TEXT COLLATE "C",
    activity BIGINT NOT NULL,
    data_json TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_events_mission ON events (mission_id, seq) WHERE mission_id IS NOT NULL;
CREATE INDEX idx_events_type ON events (type, seq);
CREATE INDEX idx_events_kind ON events (mission_id, type, seq) WHERE mission_id IS NOT NULL;
CREATE INDEX idx_events_agent ON events (agent_id, seq) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_events_deeds ON events (mission_id, agent_id, seq)
    WHERE activity = 1 AND agent_id IS NOT NULL;

CREATE TABLE cursors (
    consumer TEXT COLLATE "C" NOT NULL,
    stream TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (consumer, stream)
);
CREATE INDEX idx_cursors_stream ON cursors (stream, position);

CREATE TABLE checkpoints (
    id TEXT COLLATE "C" PRIMARY KEY,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    timestamp TEXT COLLATE "C" NOT NULL,
    trigger TEXT COLLATE "C" NOT NULL
        CHECK (trigger IN ('progress', 'error', 'manual', 'compaction')),
    trigger_details TEXT COLLATE "C",
    progress_percent BIGINT NOT NULL CHECK (progress_percent >= 0 AND progress_percent <= 100),
    seq BIGINT NOT NULL,
    undo BIGINT NOT NULL DEFAULT 0,
    sortie_count BIGINT NOT NULL,
    lock_count BIGINT NOT NULL,
    message_count BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    state_digest TEXT COLLATE "C" NOT NULL,
    consumed_at TEXT COLLATE "C",
    backed_up_at TEXT COLLATE "C",
    deleted_at TEXT COLLATE "C",
    created_by TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL DEFAULT '1.0.0',
    source_details_json TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    warnings_json TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    mission_json TEXT COLLATE "C",
    recovery_context_json TEXT COLLATE "C" NOT NULL,
    locks_json TEXT COLLATE "C" NOT NULL,
    messages_json TEXT COLLATE "C" NOT NULL,
    sorties_json TEXT COLLATE "C" NOT NULL,
    machine TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX idx_checkpoints_mission ON checkpoints (mission_id, seq DESC);
CREATE INDEX idx_checkpoints_trigger ON checkpoints (trigger);
CREATE INDEX idx_checkpoints_timestamp ON checkpoints (timestamp);
CREATE INDEX idx_checkpoints_seq ON checkpoints (seq DESC);
CREATE INDEX idx_checkpoints_live ON checkpoints (mission_id, seq, trigger)
    WHERE deleted_at IS NULL;
CREATE INDEX idx_checkpoints_outbox
    ON checkpoints (machine, seq, id, mission_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
CREATE INDEX idx_checkpoints_names ON checkpoints (mission_id, id, version, machine);

CREATE TABLE recoveries (
    id TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT NOT NULL,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    checkpoint_id TEXT COLLATE "C" NOT NULL,
    undo_checkpoint_id TEXT COLLATE "C",
    agent_id TEXT COLLATE "C",
    requested_by TEXT COLLATE "C" NOT NULL,
    scope TEXT COLLATE "C" NOT NULL CHECK (scope IN ('mission', 'agent')),
    state TEXT COLLATE "C" NOT NULL
        CHECK (state IN ('pending', 'briefed', 'resumed', 'unconfirmed')),
    created_at TEXT COLLATE "C" NOT NULL,
    briefed_at TEXT COLLATE "C",
    resumed_at TEXT COLLATE "C",
    briefed_awake_ms BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX idx_recoveries_mission ON recoveries (mission_id, seq);
CREATE INDEX idx_recoveries_seq ON recoveries (seq);
CREATE INDEX idx_recoveries_open ON recoveries (mission_id) WHERE state <> 'resumed';

CREATE TABLE episodes (
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    last_seq BIGINT NOT NULL,
    detected_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (mission_id, last_seq)
);

CREATE TABLE tool_calls (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    call_id TEXT COLLATE "C" NOT NULL,
    started_at TEXT COLLATE "C" NOT NULL,
    started_awake_ms BIGINT NOT NULL,
    PRIMARY KEY (agent_id, call_id)
);
CREATE INDEX idx_tool_calls_age ON tool_calls (started_awake_ms);

CREATE TABLE plan_items (
    sortie_id TEXT COLLATE "C" PRIMARY KEY,
    mission_id TEXT COLLATE "C" NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    agent_id TEXT COLLATE "C" NOT NULL,
    item_id TEXT COLLATE "C",
    position BIGINT NOT NULL,
    text TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL
        CHECK (status IN ('pending', 'in_progress', 'completed', 'dropped', 'back', '')),
    made BIGINT NOT NULL
);
CREATE INDEX idx_plan_items_agent ON plan_items (agent_id, mission_id, position)
    WHERE status <> 'dropped';
CREATE INDEX idx_plan_items_mission ON plan_items (mission_id);

CREATE TABLE idempotency_keys (
    method TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    params_digest TEXT COLLATE "C" NOT NULL,
    result_json TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (method, key)
);
CREATE INDEX idx_idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE forgetting (
    kind TEXT COLLATE "C" NOT NULL
        CHECK (kind IN ('mission', 'session', 'project', 'deletion', 'bytes')),
    name TEXT COLLATE "C" NOT NULL,
    scope_json TEXT COLLATE "C" NOT NULL DEFAULT '',
    machine TEXT COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);

CREATE TABLE forgotten (
    noun TEXT COLLATE "C" NOT NULL CHECK (noun IN ('mission', 'run')),
    digest TEXT COLLATE "C" NOT NULL,
    until_seq BIGINT,
    PRIMARY KEY (noun, digest)
);

CREATE TABLE sessions (
    harness TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    subagent TEXT COLLATE "C" NOT NULL DEFAULT '',
    agent_id TEXT COLLATE "C" NOT NULL,
    context TEXT COLLATE "C" NOT NULL DEFAULT 'whole'
        CHECK (context IN ('whole', 'compacting', 'lost', 'briefed')),
    briefed_by TEXT COLLATE "C",
    transcript_mark TEXT COLLATE "C",
    started_at TEXT COLLATE "C" NOT NULL,
    last_event_at TEXT COLLATE "C" NOT NULL,
    ended_at TEXT COLLATE "C",
    window_tokens BIGINT,
    window_size BIGINT,
    PRIMARY KEY (harness, session_id, subagent)
);
CREATE INDEX idx_sessions_agent ON sessions (agent_id);
CREATE INDEX idx_sessions_session ON sessions (session_id);
CREATE INDEX idx_sessions_briefed ON sessions (briefed_by) WHERE briefed_by IS NOT NULL;

CREATE TABLE hook_deliveries (
    seq BIGINT PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    harness TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C",
    event TEXT COLLATE "C",
    fingerprint TEXT COLLATE "C",
    happened_ms BIGINT,
    received_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX idx_hook_deliveries_age ON hook_deliveries (received_at);
CREATE INDEX idx_hook_deliveries_double ON hook_deliveries (fingerprint, happened_ms)
    WHERE fingerprint IS NOT NULL;
CREATE INDEX idx_hook_deliveries_session ON hook_deliveries (session_id, seq);

CREATE TABLE hook_counts (
    harness TEXT COLLATE "C" PRIMARY KEY,
    deliveries BIGINT NOT NULL DEFAULT 0,
    from_spool BIGINT NOT NULL DEFAULT 0,
    unfit BIGINT NOT NULL DEFAULT 0,
    last_event TEXT COLLATE "C",
    last_event_at TEXT COLLATE "C"
);

CREATE TABLE runs (
    id TEXT COLLATE "C" PRIMARY KEY,
    agent_id TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL
        CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    snapshot_awake_ms BIGINT NOT NULL DEFAULT 0,
    events_seq BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX idx_runs_agent ON runs (agent_id);
CREATE INDEX idx_runs_due ON runs (snapshot_awake_ms) WHERE status = 'in_progress';

CREATE TABLE snapshots (
    id TEXT COLLATE "C" PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    timestamp TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL
        CHECK (source IN ('step_boundary', 'error_boundary', 'timer', 'manual')),
    status TEXT COLLATE "C" NOT NULL
        CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    seq BIGINT NOT NULL,
    step_id TEXT COLLATE "C",
    step_ordinal BIGINT,
    step_status TEXT COLLATE "C",
    window_pressure TEXT COLLATE "C" NOT NULL,
    outcome_count BIGINT NOT NULL,
    gathered BIGINT NOT NULL DEFAULT 0,
    size_bytes BIGINT NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL DEFAULT '1',
    backed_up_at TEXT COLLATE "C",
    deleted_at TEXT COLLATE "C",
    file_digest TEXT COLLATE "C" NOT NULL,
    compressed_at TEXT COLLATE "C",
    gzip_digest TEXT COLLATE "C",
    gzip_bytes BIGINT,
    agent_id TEXT COLLATE "C",
    window_tokens BIGINT,
    window_size BIGINT,
    note TEXT COLLATE "C",
    source_details_json TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    warnings_json TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    document_json TEXT COLLATE "C" NOT NULL,
    machine TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX idx_snapshots_run ON snapshots
    (run_id, seq DESC, deleted_at, id, version, status, size_bytes, machine);
CREATE INDEX idx_snapshots_seq ON snapshots (seq DESC);
CREATE INDEX idx_snapshots_outbox ON snapshots (machine, seq, id, run_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
CREATE INDEX idx_snapshots_plain ON snapshots (timestamp)
    WHERE compressed_at IS NULL AND deleted_at IS NULL;
CREATE INDEX idx_snapshots_agent ON snapshots (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_snapshots_step ON snapshots (step_id) WHERE step_id IS NOT NULL;

CREATE TABLE snapshot_missions (
    mission_id TEXT COLLATE "C" NOT NULL,
    snapshot_id TEXT COLLATE "C" NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    PRIMARY KEY (mission_id, snapshot_id)
);
CREATE INDEX idx_snapshot_missions_snapshot ON snapshot_missions (snapshot_id);

-- The store's own: which migrations there were, and which batch of each machine was committed last.
CREATE TABLE schema_version (
    version BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_schema_version_single ON schema_version ((true));

CREATE TABLE writers (
    machine TEXT COLLATE "C" PRIMARY KEY,
    batch BIGINT NOT NULL
);

-- Rows that are written all the time, over and over: the new version finds room beside the old one,
-- and no index is touched.
ALTER TABLE writers SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE counters SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE tallies SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE machines SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE hook_counts SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE cursors SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE missions SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE sorties SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE agents SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE sessions SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE runs SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- What comes and goes, so that there are soon more rows gone than there.
ALTER TABLE lock_waits SET (autovacuum_vacuum_scale_factor = 0);
ALTER TABLE tool_calls SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE idempotency_keys SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE hook_deliveries SET (autovacuum_vacuum_scale_factor = 0.05);

-- Numbers follow each other without a gap and in order of commit, since one transaction writes at a
-- time: a sequence would not go back when one is rolled back. None is given twice, also when the
-- row with the highest is deleted: "counters" keeps it then. Whoever inserts may bring a number
-- along.
CREATE FUNCTION number_event() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    NEW.seq := 1 + greatest(
        (SELECT max(seq) FROM events),
        (SELECT value FROM counters WHERE name = 'events'),
        0
    );
    RETURN NEW;
END $$;
CREATE TRIGGER number_event BEFORE INSERT ON events
    FOR EACH ROW WHEN (NEW.seq IS NULL) EXECUTE FUNCTION number_event();
CREATE FUNCTION number_event_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO counters AS kept (name, value)
        SELECT 'events', max(seq) FROM gone
        HAVING max(seq) > coalesce((SELECT max(seq) FROM events), 0)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
        WHERE kept.value < excluded.value;
    RETURN NULL;
END $$;
CREATE TRIGGER number_event_kept AFTER DELETE ON events
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION number_event_kept();
CREATE FUNCTION number_lock_wait() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    NEW.id := 1 + greatest(
        (SELECT max(id) FROM lock_waits),
        (SELECT value FROM counters WHERE name = 'lock_waits'),
        0
    );
    RETURN NEW;
END $$;
CREATE TRIGGER number_lock_wait BEFORE INSERT ON lock_waits
    FOR EACH ROW WHEN (NEW.id IS NULL) EXECUTE FUNCTION number_lock_wait();
CREATE FUNCTION number_lock_wait_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO counters AS kept (name, value)
        SELECT 'lock_waits', max(id) FROM gone
        HAVING max(id) > coalesce((SELECT max(id) FROM lock_waits), 0)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
        WHERE kept.value < excluded.value;
    RETURN NULL;
END $$;
CREATE TRIGGER number_lock_wait_kept AFTER DELETE ON lock_waits
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION number_lock_wait_kept();
CREATE FUNCTION number_hook_delivery() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    NEW.seq := 1 + greatest(
        (SELECT max(seq) FROM hook_deliveries),
        (SELECT value FROM counters WHERE name = 'hook_deliveries'),
        0
    );
    RETURN NEW;
END $$;
CREATE TRIGGER number_hook_delivery BEFORE INSERT ON hook_deliveries
    FOR EACH ROW WHEN (NEW.seq IS NULL) EXECUTE FUNCTION number_hook_delivery();
CREATE FUNCTION number_hook_delivery_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO counters AS kept (name, value)
        SELECT 'hook_deliveries', max(seq) FROM gone
        HAVING max(seq) > coalesce((SELECT max(seq) FROM hook_deliveries), 0)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
        WHERE kept.value < excluded.value;
    RETURN NULL;
END $$;
CREATE TRIGGER number_hook_delivery_kept AFTER DELETE ON hook_deliveries
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION number_hook_delivery_kept();
CREATE FUNCTION number_briefing() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    NEW.id := 1 + coalesce((SELECT max(id) FROM briefings), 0);
    RETURN NEW;
END $$;
CREATE TRIGGER number_briefing BEFORE INSERT ON briefings
    FOR EACH ROW WHEN (NEW.id IS NULL) EXECUTE FUNCTION number_briefing();

-- The tallies, by the triggers that SQLite has, under their names.
CREATE FUNCTION tally(thing TEXT, piece TEXT, more BIGINT) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
    INSERT INTO tallies (what, part, number) VALUES (thing, piece, more)
        ON CONFLICT (what, part) DO UPDATE SET number = tallies.number + excluded.number
$$;
-- One more of what an INSERT brings, one less of what a DELETE takes, of the part in a column.
CREATE FUNCTION tally_mission() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM tally('missions', OLD.status, -1); END IF;
    IF TG_OP <> 'DELETE' THEN PERFORM tally('missions', NEW.status, 1); END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION tally_checkpoint() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM tally('checkpoints', NEW.trigger, 1);
    ELSE
        PERFORM tally('checkpoints', OLD.trigger, -1);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION tally_session() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM tally('sessions', NEW.harness, 1);
    ELSE
        PERFORM tally('sessions', OLD.harness, -1);
    END IF;
    RETURN NULL;
END $$;
-- So many more of what has no parts, as the trigger says.
CREATE FUNCTION tally_whole() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM tally(TG_ARGV[0], '', TG_ARGV[1]::bigint);
    RETURN NULL;
END $$;
-- Events go by the thousand.
CREATE FUNCTION tally_events() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM tally('events gone', '', count(*)) FROM gone HAVING count(*) > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER tally_mission_made AFTER INSERT ON missions
    FOR EACH ROW EXECUTE FUNCTION tally_mission();
CREATE TRIGGER tally_mission_moved AFTER UPDATE OF status ON missions
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION tally_mission();
CREATE TRIGGER tally_mission_gone AFTER DELETE ON missions
    FOR EACH ROW EXECUTE FUNCTION tally_mission();
CREATE TRIGGER tally_sortie_made AFTER INSERT ON sorties
    FOR EACH ROW EXECUTE FUNCTION tally_whole('sorties', '1');
CREATE TRIGGER tally_sortie_gone AFTER DELETE ON sorties
    FOR EACH ROW EXECUTE FUNCTION tally_whole('sorties', '-1');
CREATE TRIGGER tally_recovery_made AFTER INSERT ON recoveries
    FOR EACH ROW EXECUTE FUNCTION tally_whole('recoveries', '1');
CREATE TRIGGER tally_recovery_gone AFTER DELETE ON recoveries
    FOR EACH ROW EXECUTE FUNCTION tally_whole('recoveries', '-1');
CREATE TRIGGER tally_agent_come AFTER INSERT ON agents
    FOR EACH ROW WHEN (NEW.status <> 'gone') EXECUTE FUNCTION tally_whole('agents', '1');
CREATE TRIGGER tally_agent_back AFTER UPDATE OF status ON agents
    FOR EACH ROW WHEN (OLD.status = 'gone' AND NEW.status <> 'gone')
    EXECUTE FUNCTION tally_whole('agents', '1');
CREATE TRIGGER tally_agent_left AFTER UPDATE OF status ON agents
    FOR EACH ROW WHEN (OLD.status <> 'gone' AND NEW.status = 'gone')
    EXECUTE FUNCTION tally_whole('agents', '-1');
CREATE TRIGGER tally_agent_gone AFTER DELETE ON agents
    FOR EACH ROW WHEN (OLD.status <> 'gone') EXECUTE FUNCTION tally_whole('agents', '-1');
CREATE TRIGGER tally_checkpoint_made AFTER INSERT ON checkpoints
    FOR EACH ROW WHEN (NEW.deleted_at IS NULL) EXECUTE FUNCTION tally_checkpoint();
CREATE TRIGGER tally_checkpoint_marked AFTER UPDATE OF deleted_at ON checkpoints
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION tally_checkpoint();
CREATE TRIGGER tally_checkpoint_gone AFTER DELETE ON checkpoints
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL) EXECUTE FUNCTION tally_checkpoint();
CREATE TRIGGER tally_snapshot_made AFTER INSERT ON snapshots
    FOR EACH ROW WHEN (NEW.deleted_at IS NULL) EXECUTE FUNCTION tally_whole('snapshots', '1');
CREATE TRIGGER tally_snapshot_marked AFTER UPDATE OF deleted_at ON snapshots
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION tally_whole('snapshots', '-1');
CREATE TRIGGER tally_snapshot_gone AFTER DELETE ON snapshots
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL) EXECUTE FUNCTION tally_whole('snapshots', '-1');
CREATE TRIGGER tally_session_made AFTER INSERT ON sessions
    FOR EACH ROW WHEN (NEW.subagent = '') EXECUTE FUNCTION tally_session();
CREATE TRIGGER tally_session_gone AFTER DELETE ON sessions
    FOR EACH ROW WHEN (OLD.subagent = '') EXECUTE FUNCTION tally_session();
CREATE TRIGGER tally_event_gone AFTER DELETE ON events
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION tally_events();
