-- The schema as all migrations together leave it; a test compares the two.

CREATE TABLE store_meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Counters that must never go back, such as the fencing tokens.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many rows there are, kept by triggers: counting them would read every one. "part" is the
-- status of missions, the trigger of checkpoints, the harness of sessions; else it is empty.
-- Checkpoints and snapshots are those that are not deleted, agents those that are not gone,
-- sessions those of no subagent. Of events those are counted that the log's numbers still count and
-- that are not there any more.
CREATE TABLE tallies (
    what TEXT NOT NULL,
    part TEXT NOT NULL DEFAULT '',
    number INTEGER NOT NULL,
    PRIMARY KEY (what, part)
) STRICT, WITHOUT ROWID;

-- The machines of a shared store: one daemon of one user on one computer each. A store that one
-- machine has to itself names none: there, whose something is is ''.
CREATE TABLE machines (
    id TEXT PRIMARY KEY,
    -- What its computer is called, for people.
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('here', 'left', 'lost')),
    started_at TEXT NOT NULL,
    -- When its daemon told last that it lives.
    heard_at TEXT NOT NULL,
    heard_awake_ms INTEGER NOT NULL,
    -- Since when it has told so without a break: as long its agents could make themselves heard.
    since_awake_ms INTEGER NOT NULL,
    -- Which start of its daemon it was, and where pids mean what they meant to it: a copy of the id
    -- is told from it.
    nonce TEXT NOT NULL DEFAULT '',
    boot_id TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE TABLE missions (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled')),
    priority TEXT NOT NULL DEFAULT 'medium'
        CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    project_dir TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    last_activity_at TEXT,
    last_activity_seq INTEGER NOT NULL DEFAULT 0,
    milestone INTEGER NOT NULL DEFAULT 0,
    total_sorties INTEGER NOT NULL DEFAULT 0,
    completed_sorties INTEGER NOT NULL DEFAULT 0,
    metadata_json TEXT NOT NULL DEFAULT '{}',
    -- "Awake" columns count ms of a clock that nobody steps and that stands still while the machine
    -- sleeps; store_meta.boot says which boot they belong to. Zero is "long ago".
    active_awake_ms INTEGER NOT NULL DEFAULT 0,
    -- Set with the episode, cleared by activity: the scan reads only who may have fallen silent.
    silent INTEGER NOT NULL DEFAULT 0,
    -- Where its project_dir is a directory.
    machine TEXT NOT NULL DEFAULT '',
    -- What its project is called on every machine; NULL where it has no such name, and where one
    -- machine has the store to itself.
    project TEXT,
    -- Who made it: a person or agent who asked for it, or fleetd for a session that had none.
    origin TEXT NOT NULL DEFAULT 'person' CHECK (origin IN ('person', 'session')),
    -- Why it is closed; NULL while it is open.
    closed_reason TEXT CHECK (closed_reason IN ('session', 'merged', 'person')),
    -- The agent that worded its title; NULL for a person.
    author TEXT,
    -- Its newest event that tells of work; 0 for none.
    last_deed_seq INTEGER NOT NULL DEFAULT 0,
    -- Whether hooks give its agents their briefing; without one they are the control group.
    briefing TEXT NOT NULL DEFAULT 'on' CHECK (briefing IN ('on', 'off'))
) STRICT;
-- The silence scan reads this and nothing else: it must not grow with events or old missions.
CREATE INDEX idx_missions_status ON missions (status, silent, active_awake_ms);
-- A list of missions is read from its index, newest first, page by page.
CREATE INDEX idx_missions_created ON missions (created_at DESC, id);
CREATE INDEX idx_missions_listed ON missions (status, created_at DESC, id);
-- Which mission a directory belongs to is asked for the directory and those above it.
CREATE INDEX idx_missions_project ON missions (machine, project_dir, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
CREATE INDEX idx_missions_place ON missions (machine, project_dir, status, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
-- On another machine, for the project.
CREATE INDEX idx_missions_named ON missions (project, status) WHERE project IS NOT NULL;

CREATE TABLE sorties (
    id TEXT PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    title TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'assigned', 'in_progress', 'blocked', 'completed', 'failed')),
    priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    assigned_to TEXT,
    files_json TEXT NOT NULL DEFAULT '[]',
    progress INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    progress_notes TEXT,
    blocked_reason TEXT,
    result TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    -- What the last recovery left for it, until its next progress.
    briefing_id INTEGER,
    -- The agent that worded its title; NULL for a person.
    author TEXT,
    -- The sorties of the same mission that are to be completed first.
    depends_on_json TEXT NOT NULL DEFAULT '[]'
) STRICT;
-- Who waits for a sortie that goes: nearly always nobody.
CREATE INDEX idx_sorties_waiting ON sorties (mission_id) WHERE depends_on_json <> '[]';
-- Whose work falls into a span: what ended after its beginning, and what has not ended.
CREATE INDEX idx_sorties_worked ON sorties (completed_at, started_at)
    WHERE started_at IS NOT NULL;
CREATE INDEX idx_sorties_mission ON sorties (mission_id, position);
CREATE INDEX idx_sorties_status ON sorties (mission_id, status);

-- An agent's part of the recovery context, for all its open sorties.
CREATE TABLE briefings (
    id INTEGER PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    context_json TEXT NOT NULL
) STRICT;
CREATE INDEX idx_briefings_mission ON briefings (mission_id);

CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('dispatch', 'specialist')),
    harness TEXT,
    session_id TEXT,
    pid INTEGER,
    pid_started TEXT,
    mission_id TEXT REFERENCES missions (id) ON DELETE SET NULL,
    cwd TEXT,
    status TEXT NOT NULL CHECK (status IN ('active', 'waiting', 'idle', 'lost', 'gone')),
    registered_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    succeeded_by TEXT,
    note_json TEXT,
    seen_awake_ms INTEGER NOT NULL DEFAULT 0,
    -- Where its process runs.
    machine TEXT NOT NULL DEFAULT '',
    -- What it needs of a person while it waits, and since when; NULL when nothing is known of that.
    needs TEXT,
    needs_since TEXT,
    -- What it needs in words, and when a limit that it met ends.
    needs_text TEXT,
    needs_reset_at TEXT
) STRICT;
CREATE INDEX idx_agents_mission ON agents (mission_id);
-- Whose work an agent took over: asked at every briefing.
CREATE INDEX idx_agents_succeeded ON agents (succeeded_by) WHERE succeeded_by IS NOT NULL;
-- Of a status; those that are gone are most, and nobody asks for them.
CREATE INDEX idx_agents_here ON agents (status, id) WHERE status <> 'gone';
-- Whose processes are to be watched, at the start.
CREATE INDEX idx_agents_process ON agents (machine, id) WHERE pid IS NOT NULL;

CREATE TABLE locks (
    id TEXT PRIMARY KEY,
    file TEXT NOT NULL,
    normalized_path TEXT NOT NULL,
    held_by TEXT NOT NULL,
    mission_id TEXT REFERENCES missions (id) ON DELETE SET NULL,
    purpose TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'released', 'expired', 'forced')),
    released_at TEXT,
    -- When the holder's process was found dead; the lease then ends after a short grace.
    orphaned_at TEXT,
    mode TEXT NOT NULL DEFAULT 'exclusive'
        CHECK (mode IN ('exclusive', 'shared')),
    -- The key of the directory that a lock on a directory or a pattern lies in, with the slash.
    -- Behind it, normalized_path goes on with the pattern.
    directory TEXT,
    -- Whether an edit took it.
    automatic INTEGER NOT NULL DEFAULT 0,
    -- The longest text without a wildcard in the pattern: no file whose path lacks it is covered.
    literal TEXT NOT NULL DEFAULT '',
    -- From which event on it was in force, and from which on no more.
    granted_seq INTEGER NOT NULL DEFAULT 0,
    ended_seq INTEGER
) STRICT;
-- Two agents never hold one file, or the same pattern, exclusively: the index makes it true.
CREATE UNIQUE INDEX idx_locks_active ON locks (
    normalized_path, (CASE mode WHEN 'exclusive' THEN coalesce(directory, '') ELSE id END)
) WHERE status = 'active';
CREATE INDEX idx_locks_directory ON locks (directory, literal)
    WHERE status = 'active' AND directory IS NOT NULL;
-- Of any status: a mission that is deleted, or recovered, asks for those that ended too.
CREATE INDEX idx_locks_holder ON locks (held_by, status);
CREATE INDEX idx_locks_mission ON locks (mission_id, status);
-- What ended long enough ago to be dropped.
CREATE INDEX idx_locks_ended ON locks (released_at) WHERE status <> 'active';

-- Those who wait for a lock, served in order of id. A row lives as long as its client waits.
CREATE TABLE lock_waits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    normalized_path TEXT NOT NULL,
    file TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    mission_id TEXT,
    purpose TEXT NOT NULL,
    timeout_ms INTEGER NOT NULL,
    lock_id TEXT,
    -- Where its client waits.
    machine TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL DEFAULT 'exclusive',
    directory TEXT,
    -- Since when it waits, in ms since 1970, and whose the lock was then.
    began_ms INTEGER NOT NULL DEFAULT 0,
    waited_for TEXT
) STRICT;
CREATE INDEX idx_lock_waits_path ON lock_waits (normalized_path, id);
CREATE INDEX idx_lock_waits_directory ON lock_waits (directory) WHERE directory IS NOT NULL;

CREATE TABLE messages (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    mission_id TEXT REFERENCES missions (id) ON DELETE CASCADE,
    thread_id TEXT,
    sender TEXT NOT NULL,
    to_json TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT,
    priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high', 'critical')),
    sent_at TEXT NOT NULL
) STRICT;
CREATE INDEX idx_messages_mission ON messages (mission_id, seq);
CREATE INDEX idx_messages_seq ON messages (seq);

CREATE TABLE deliveries (
    message_id TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'delivered', 'acked', 'failed')),
    delivered_at TEXT,
    acked_at TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_deliveries_inbox ON deliveries (agent_id, status, seq);
CREATE INDEX idx_deliveries_queued ON deliveries (message_id) WHERE status = 'queued';

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    stream TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    mission_id TEXT,
    agent_id TEXT,
    activity INTEGER NOT NULL,
    data_json TEXT NOT NULL,
    -- What changed with it in the state of its mission; NULL for nothing.
    state_json TEXT,
    -- What a timeline marks of it, and when, in ms since 1970; NULL for most events.
    mark TEXT,
    marked_ms INTEGER
) STRICT;
-- A timeline reads its marks from this alone.
CREATE INDEX idx_events_marks ON events (marked_ms, mark, agent_id, mission_id, timestamp)
    WHERE mark IS NOT NULL;
-- The state of a mission at a moment: a checkpoint, and these after it.
CREATE INDEX idx_events_state ON events (mission_id, seq) WHERE state_json IS NOT NULL;
CREATE INDEX idx_events_mission ON events (mission_id, seq) WHERE mission_id IS NOT NULL;
CREATE INDEX idx_events_type ON events (type, seq);
CREATE INDEX idx_events_kind ON events (mission_id, type, seq) WHERE mission_id IS NOT NULL;
CREATE INDEX idx_events_agent ON events (agent_id, seq) WHERE agent_id IS NOT NULL;
-- When a person last spoke to an agent, among thousands of events.
CREATE INDEX idx_events_prompts ON events (agent_id, seq) WHERE type = 'prompt_submitted';
-- What an agent did last in a mission, of whatever else there is of either.
CREATE INDEX idx_events_deeds ON events (mission_id, agent_id, seq)
    WHERE activity = 1 AND agent_id IS NOT NULL AND type NOT IN (
        'fleet_checkpointed', 'message_acked', 'agent_registered', 'agent_deregistered',
        'agent_paused', 'agent_resumed', 'lock_renewed', 'tool_started', 'tool_finished',
        'note_added', 'note_withdrawn');

CREATE TABLE cursors (
    consumer TEXT NOT NULL,
    stream TEXT NOT NULL,
    position INTEGER NOT NULL,
    -- When it was moved or read last: one that nobody uses keeps no events.
    updated_at TEXT NOT NULL,
    -- The newest of the events that went though it had not come to them; 0 for none.
    missed_seq INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, stream)
) STRICT, WITHOUT ROWID;
-- Who has not read an event yet: asked for every event that is to go.
CREATE INDEX idx_cursors_stream ON cursors (stream, position);

-- What a list shows stands before the JSON, so that listing never reads overflow pages.
CREATE TABLE checkpoints (
    id TEXT PRIMARY KEY,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    timestamp TEXT NOT NULL,
    trigger TEXT NOT NULL CHECK (trigger IN ('progress', 'error', 'manual', 'compaction')),
    trigger_details TEXT,
    progress_percent INTEGER NOT NULL CHECK (progress_percent >= 0 AND progress_percent <= 100),
    seq INTEGER NOT NULL,
    undo INTEGER NOT NULL DEFAULT 0,
    sortie_count INTEGER NOT NULL,
    lock_count INTEGER NOT NULL,
    message_count INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL,
    state_digest TEXT NOT NULL,
    consumed_at TEXT,
    backed_up_at TEXT,
    deleted_at TEXT,
    created_by TEXT NOT NULL,
    version TEXT NOT NULL DEFAULT '1.0.0',
    source_details_json TEXT NOT NULL DEFAULT '[]',
    warnings_json TEXT NOT NULL DEFAULT '[]',
    mission_json TEXT,
    recovery_context_json TEXT NOT NULL,
    locks_json TEXT NOT NULL,
    messages_json TEXT NOT NULL,
    sorties_json TEXT NOT NULL,
    -- Where its file lies.
    machine TEXT NOT NULL DEFAULT '',
    -- When its file was verified last, or written; '' for never.
    verified_at TEXT NOT NULL DEFAULT ''
) STRICT;
-- The newest milestone and the oldest error of a mission are found however many others there are.
CREATE INDEX idx_checkpoints_trigger ON checkpoints (trigger, mission_id, seq)
    WHERE deleted_at IS NULL;
CREATE INDEX idx_checkpoints_seq ON checkpoints (seq DESC);
-- The newest is the one with the highest seq: a clock can be stepped back, the log cannot. Counting
-- reads this; a row of the table is a page or more.
CREATE INDEX idx_checkpoints_live ON checkpoints (mission_id, seq, trigger)
    WHERE deleted_at IS NULL;
-- The row is the outbox: what still needs a file written, or a file removed. In the order in which it
-- is worked off, and with all that is asked: it is nearly always empty, and without this every
-- checkpoint was read to find that out.
CREATE INDEX idx_checkpoints_outbox
    ON checkpoints (machine, seq, id, mission_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
-- Comparing rows with the names on disk reads this: no row, no file.
CREATE INDEX idx_checkpoints_names ON checkpoints (mission_id, id, version, machine);
-- Whose turn it is to be verified.
CREATE INDEX idx_checkpoints_verified ON checkpoints (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;

CREATE TABLE recoveries (
    id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    checkpoint_id TEXT NOT NULL,
    undo_checkpoint_id TEXT,
    agent_id TEXT,
    requested_by TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('mission', 'agent')),
    state TEXT NOT NULL CHECK (state IN ('pending', 'briefed', 'resumed', 'unconfirmed')),
    created_at TEXT NOT NULL,
    briefed_at TEXT,
    resumed_at TEXT,
    briefed_awake_ms INTEGER NOT NULL DEFAULT 0,
    -- Whose work the agent took over, and in which mission its session was before.
    taken_over_from TEXT,
    left_mission_id TEXT
) STRICT;
CREATE INDEX idx_recoveries_mission ON recoveries (mission_id, seq);
CREATE INDEX idx_recoveries_seq ON recoveries (seq);
-- Looked at with every activity, and nearly always empty.
CREATE INDEX idx_recoveries_open ON recoveries (mission_id) WHERE state <> 'resumed';
-- Whose sessions came from elsewhere: asked at every briefing.
CREATE INDEX idx_recoveries_left ON recoveries (mission_id) WHERE left_mission_id IS NOT NULL;

-- One uninterrupted silence of a mission: the key is what makes its event unique.
CREATE TABLE episodes (
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    last_seq INTEGER NOT NULL,
    detected_at TEXT NOT NULL,
    PRIMARY KEY (mission_id, last_seq)
) STRICT, WITHOUT ROWID;

-- What agents have begun and not finished: a mission that waits for a build is not silent.
CREATE TABLE tool_calls (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    started_at TEXT NOT NULL,
    started_awake_ms INTEGER NOT NULL,
    -- The files that it is about to change, as a JSON array of the paths of locks.
    files_json TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (agent_id, call_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_tool_calls_age ON tool_calls (started_awake_ms);
CREATE INDEX idx_tool_calls_files ON tool_calls (started_at) WHERE files_json <> '[]';

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

-- A request for permission that counts unless its agent goes on at once.
CREATE TABLE unconfirmed_asks (
    agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    -- Its place in the log: activity of the agent behind it says that nobody was asked.
    seq INTEGER NOT NULL,
    since TEXT NOT NULL,
    text TEXT,
    due_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What runs for an agent beside its own turn, and what has run.
CREATE TABLE running_work (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    -- The harness's own name of it.
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    told TEXT,
    began_at TEXT NOT NULL,
    seen_at TEXT NOT NULL,
    ended_at TEXT,
    output TEXT,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;

-- The files that agents changed within the last hour: which two agents changed one.
CREATE TABLE edits (
    -- Of a subagent the agent of its session.
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    -- The real path, as the key of a lock has it.
    path TEXT NOT NULL,
    -- What the file is called in all worktrees of its repository; the path where that is not known.
    place TEXT NOT NULL,
    -- The path inside the repository, else the path: for a reader.
    file TEXT NOT NULL,
    at TEXT NOT NULL,
    -- The ten minutes that "at" is in, its first 15 characters: indexed, since they seldom change.
    period TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_edits_place ON edits (place);
CREATE INDEX idx_edits_path ON edits (path);
CREATE INDEX idx_edits_period ON edits (period);

-- What an agent is told, or was told, of the others' edits: each pair of agents of a file once.
CREATE TABLE edit_conflicts (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    other_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    place TEXT NOT NULL,
    file TEXT NOT NULL,
    other_path TEXT NOT NULL,
    -- When the other one changed it.
    at TEXT NOT NULL,
    told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, other_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_edit_conflicts_other ON edit_conflicts (other_id);
CREATE INDEX idx_edit_conflicts_untold ON edit_conflicts (agent_id, told);

-- Agents, locks and edits as they were: a row each time that one changed, with the end of the log
-- and the time then. The newest row up to a moment is the state at it.
CREATE TABLE agent_history (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    role TEXT NOT NULL,
    harness TEXT,
    session_id TEXT,
    mission_id TEXT,
    cwd TEXT,
    status TEXT NOT NULL,
    registered_at TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    succeeded_by TEXT,
    machine TEXT NOT NULL,
    needs TEXT,
    needs_since TEXT,
    needs_text TEXT,
    needs_reset_at TEXT,
    PRIMARY KEY (agent_id, seq, changed_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_agent_history_seq ON agent_history (seq);
-- A mission that is deleted is named nowhere.
CREATE INDEX idx_agent_history_mission ON agent_history (mission_id) WHERE mission_id IS NOT NULL;
CREATE TABLE lock_history (
    lock_id TEXT NOT NULL REFERENCES locks (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    changed_at TEXT NOT NULL,
    mission_id TEXT,
    purpose TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    -- NULL for a lease as it was granted: timeout_ms after acquired_at.
    expires_at TEXT,
    timeout_ms INTEGER NOT NULL,
    fencing_token INTEGER NOT NULL,
    orphaned_at TEXT,
    mode TEXT NOT NULL,
    automatic INTEGER NOT NULL,
    PRIMARY KEY (lock_id, seq, changed_at)
) STRICT, WITHOUT ROWID;
CREATE TABLE edit_history (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    seq INTEGER NOT NULL,
    place TEXT NOT NULL,
    file TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (agent_id, path, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_edit_history_at ON edit_history (at);

-- The files that agents changed in other work trees: of each tree an agent is told once.
CREATE TABLE outside_edits (
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    worktree TEXT NOT NULL,
    began_in TEXT NOT NULL,
    at TEXT NOT NULL,
    told INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_outside_edits_at ON outside_edits (at);
CREATE INDEX idx_outside_edits_untold ON outside_edits (agent_id) WHERE told = 0;

-- Notes that last: appended, withdrawn with a reason, never edited.
CREATE TABLE notes (
    id TEXT PRIMARY KEY,
    -- Its place in the log: the order of notes.
    seq INTEGER NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('decision', 'ruled-out', 'constraint', 'finding')),
    text TEXT NOT NULL,
    because TEXT,
    -- What it concerns: from the mission's directory where it lies in it.
    path TEXT,
    -- Whose word it is; a fact is nobody's.
    origin TEXT NOT NULL CHECK (origin IN ('person', 'agent', 'fact')),
    -- Its author, or in whose session a fact was seen; NULL for a person.
    agent_id TEXT,
    created_at TEXT NOT NULL,
    pinned_at TEXT,
    withdrawn_at TEXT,
    -- The agent that withdrew it; NULL for a person.
    withdrawn_by TEXT,
    withdrawn_reason TEXT,
    -- The mission that it was in before that was merged into its own.
    came_from TEXT
) STRICT;
-- What stands is read for each briefing and each checkpoint.
CREATE INDEX idx_notes_standing ON notes (mission_id, seq) WHERE withdrawn_at IS NULL;
CREATE INDEX idx_notes_mission ON notes (mission_id, seq);
CREATE INDEX idx_notes_seq ON notes (seq);
CREATE INDEX idx_notes_agent ON notes (agent_id, seq) WHERE agent_id IS NOT NULL;

-- Hand-offs: the work of an agent goes to a new session when that begins in time. Also those that
-- agents only ask for. Nobody misses one whose agent or mission is gone.
CREATE TABLE handoffs (
    id TEXT PRIMARY KEY,
    -- The end of the log then: what a person says to the agent after that answers what it asks for.
    seq INTEGER NOT NULL,
    agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
    -- How the session is called that it awaits; NULL while an agent only asks.
    successor_id TEXT,
    harness TEXT NOT NULL,
    mission_id TEXT NOT NULL REFERENCES missions (id) ON DELETE CASCADE,
    state TEXT NOT NULL CHECK (state IN
        ('asked', 'pending', 'completed', 'expired', 'cancelled', 'failed')),
    reason TEXT,
    -- Of the agent, when its work went.
    was_status TEXT,
    checkpoint_id TEXT,
    undo_checkpoint_id TEXT,
    recovery_id TEXT,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    ended_at TEXT
) STRICT;
CREATE INDEX idx_handoffs_agent ON handoffs (agent_id, state);
-- Asked at the beginning of each session that wants to be a certain agent.
CREATE INDEX idx_handoffs_successor ON handoffs (successor_id) WHERE successor_id IS NOT NULL;
CREATE INDEX idx_handoffs_mission ON handoffs (mission_id);
CREATE INDEX idx_handoffs_asked ON handoffs (state) WHERE state = 'asked';

CREATE TABLE idempotency_keys (
    method TEXT NOT NULL,
    key TEXT NOT NULL,
    params_digest TEXT NOT NULL,
    result_json TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (method, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_idempotency_keys_age ON idempotency_keys (created_at);

-- What a forgetting still owes after a crash: targets not gone yet, and bytes not scrubbed yet.
CREATE TABLE forgetting (
    kind TEXT NOT NULL CHECK (kind IN ('mission', 'session', 'project', 'deletion', 'bytes')),
    name TEXT NOT NULL,
    -- What was found to go before any of it went: half of it would not be found so again.
    scope_json TEXT NOT NULL DEFAULT '',
    -- Which one is at it: no other machine takes it up while that one is heard of.
    machine TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- What must not come back out of a file, by the digest of its id: the id is forgotten too.
CREATE TABLE "forgotten" (
    noun TEXT NOT NULL CHECK (noun IN ('mission', 'run')),
    digest TEXT NOT NULL,
    -- Null is for ever. A session may go on: what its run records after this position is new.
    until_seq INTEGER,
    PRIMARY KEY (noun, digest)
) STRICT, WITHOUT ROWID;

-- One window of one harness. "context" says what its agent still has in it: 'whole', about to be
-- compacted ('compacting'), compacted and not briefed ('lost'), or briefed since ('briefed').
CREATE TABLE "sessions" (
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
    -- How full the window is, as its harness told last.
    window_tokens INTEGER,
    window_size INTEGER,
    -- Where its CLI was started: a session is opened again there.
    directory TEXT,
    -- Where it was when it was heard of last: the directory, the root of the work tree around it,
    -- the branch (NULL for none) and the commit. What is not known is NULL.
    cwd TEXT,
    worktree TEXT,
    branch TEXT,
    head TEXT,
    -- Whether its process ended without a word while its agent waited for a prompt.
    vanished INTEGER NOT NULL DEFAULT 0,
    -- The root of the work tree that it began in; NULL outside of one, and where nobody told.
    began_in TEXT,
    PRIMARY KEY (harness, session_id, subagent)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_sessions_agent ON sessions (agent_id);
-- A run is called after its session.
CREATE INDEX idx_sessions_session ON sessions (session_id);
CREATE INDEX idx_sessions_briefed ON sessions (briefed_by) WHERE briefed_by IS NOT NULL;
-- Those to open again after a reboot.
CREATE INDEX idx_sessions_vanished ON sessions (vanished) WHERE vanished = 1;
-- Sessions that began since their harness told anything else.
CREATE INDEX idx_sessions_begun ON sessions (harness, started_at) WHERE subagent = '';

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
    last_event_at TEXT,
    -- When a session last told more than its beginning or its end.
    told_at TEXT,
    version TEXT
) STRICT, WITHOUT ROWID;

-- Names that hooks told: the kinds of events, and what no adapter knows.
CREATE TABLE hook_names (
    harness TEXT NOT NULL,
    kind TEXT NOT NULL
        CHECK (kind IN ('event', 'unknown_event', 'unknown_field', 'unfit')),
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    last_at TEXT NOT NULL,
    PRIMARY KEY (harness, kind, name)
) STRICT, WITHOUT ROWID;

-- One run: one session of one agent, or whatever a tool calls so. Its row is as old as its first
-- snapshot and goes with its last.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    agent_id TEXT,
    -- As the newest snapshot says, and in progress again once its agent goes on.
    status TEXT NOT NULL CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    -- When the newest was taken or joined last, or its agent went on: the heartbeat counts from it.
    snapshot_awake_ms INTEGER NOT NULL DEFAULT 0,
    -- The log up to here stands in a snapshot already.
    events_seq INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX idx_runs_agent ON runs (agent_id);
-- The timer asks for runs that are under way, the one that was recorded longest ago first.
CREATE INDEX idx_runs_due ON runs (snapshot_awake_ms) WHERE status = 'in_progress';

-- What a list shows stands before the document, as with checkpoints.
CREATE TABLE snapshots (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    timestamp TEXT NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('step_boundary', 'error_boundary', 'timer', 'manual')),
    status TEXT NOT NULL CHECK (status IN ('in_progress', 'failed', 'completed', 'paused')),
    seq INTEGER NOT NULL,
    step_id TEXT,
    step_ordinal INTEGER,
    step_status TEXT,
    window_pressure TEXT NOT NULL,
    outcome_count INTEGER NOT NULL,
    -- Whether the outcomes were gathered from the log, where they can be read as well.
    gathered INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL,
    version TEXT NOT NULL DEFAULT '1',
    backed_up_at TEXT,
    deleted_at TEXT,
    -- The history file in both its forms: the checksum of its bytes.
    file_digest TEXT NOT NULL,
    compressed_at TEXT,
    gzip_digest TEXT,
    gzip_bytes INTEGER,
    -- Beside the document: whose run it was, how full its window was, what whoever asked noted.
    agent_id TEXT,
    window_tokens INTEGER,
    window_size INTEGER,
    note TEXT,
    source_details_json TEXT NOT NULL DEFAULT '[]',
    warnings_json TEXT NOT NULL DEFAULT '[]',
    document_json TEXT NOT NULL,
    -- Where its file lies.
    machine TEXT NOT NULL DEFAULT '',
    -- When its file was verified last, or written; '' for never.
    verified_at TEXT NOT NULL DEFAULT ''
) STRICT;
-- Keeping a run's snapshots few and comparing their names reads this alone, and no document.
CREATE INDEX idx_snapshots_run ON snapshots
    (run_id, seq DESC, deleted_at, id, version, status, size_bytes, machine);
CREATE INDEX idx_snapshots_seq ON snapshots (seq DESC);
CREATE INDEX idx_snapshots_outbox ON snapshots (machine, seq, id, run_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
-- What is old enough to be compressed.
CREATE INDEX idx_snapshots_plain ON snapshots (timestamp)
    WHERE compressed_at IS NULL AND deleted_at IS NULL;
-- Whose turn it is to be verified.
CREATE INDEX idx_snapshots_verified ON snapshots (machine, verified_at, id)
    WHERE backed_up_at IS NOT NULL AND deleted_at IS NULL;
-- Forgetting asks whose it was; of one that came back from its file only the step tells.
CREATE INDEX idx_snapshots_agent ON snapshots (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX idx_snapshots_step ON snapshots (step_id) WHERE step_id IS NOT NULL;

-- Which missions a snapshot holds something of: it goes with each of them. An agent that goes from
-- one mission to the next takes its last commands and its locks along.
CREATE TABLE snapshot_missions (
    mission_id TEXT NOT NULL,
    snapshot_id TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    PRIMARY KEY (mission_id, snapshot_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_snapshot_missions_snapshot ON snapshot_missions (snapshot_id);

-- What requests to models took, told by the transcripts of sessions: a row per request. A request
-- that several files tell has one key.
CREATE TABLE usage_records (
    key TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    harness TEXT NOT NULL,
    -- The agent of the session, also for its subagents.
    agent_id TEXT NOT NULL,
    mission_id TEXT,
    sortie_id TEXT,
    model TEXT,
    -- What was neither read from a cache nor written to one.
    input INTEGER NOT NULL,
    -- With the reasoning.
    output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL,
    -- With what is kept for an hour, which costs more.
    cache_write INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    reasoning INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_usage_at ON usage_records (at, key);
CREATE INDEX idx_usage_agent ON usage_records (agent_id, at, key);
CREATE INDEX idx_usage_mission ON usage_records (mission_id, at, key)
    WHERE mission_id IS NOT NULL;

-- How far the transcripts of sessions are read.
CREATE TABLE transcripts (
    machine TEXT NOT NULL DEFAULT '',
    path TEXT NOT NULL,
    harness TEXT NOT NULL,
    session_id TEXT NOT NULL,
    position INTEGER NOT NULL DEFAULT 0,
    -- The digest of its beginning, which tells it from another file of its name.
    head TEXT NOT NULL DEFAULT '',
    -- What the reader has to know of the lines before.
    state_json TEXT NOT NULL DEFAULT '{}',
    -- When a hook named it last. It is looked at for a while after that.
    noted_at TEXT NOT NULL,
    -- When a hook named it first: a fork's file is read behind the one that it copied.
    found_at TEXT NOT NULL,
    pending INTEGER NOT NULL DEFAULT 1,
    -- Bytes that were there and not read yet, and whether the file could not be opened.
    outstanding INTEGER NOT NULL DEFAULT 0,
    missing INTEGER NOT NULL DEFAULT 0,
    -- Lines that could not be read, that were too long, and requests that were counted already.
    broken INTEGER NOT NULL DEFAULT 0,
    long_lines INTEGER NOT NULL DEFAULT 0,
    repeated INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (machine, path, session_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_transcripts_pending ON transcripts (machine, found_at, path, session_id)
    WHERE pending = 1;
CREATE INDEX idx_transcripts_session ON transcripts (harness, session_id);

-- What a person wants a mission to take at most: tokens, or cents of a US dollar.
CREATE TABLE budgets (
    mission_id TEXT PRIMARY KEY REFERENCES missions (id) ON DELETE CASCADE,
    tokens INTEGER,
    usd_cents INTEGER,
    created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What events, messages and notes say, for full-text search. "id" is the place in the log, below 0
-- for what came back out of a checkpoint and shares its place.
CREATE TABLE search_documents (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL
        CHECK (kind IN ('event', 'mail', 'note', 'prompt', 'answer', 'command', 'file')),
    -- The message or the note; NULL for an event.
    source TEXT,
    at TEXT NOT NULL,
    mission_id TEXT,
    agent_id TEXT,
    -- Words without case and accents, a space between them; paths and identifiers, one a line.
    words TEXT NOT NULL,
    names TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX idx_search_documents_source ON search_documents (source)
    WHERE source IS NOT NULL;

CREATE TRIGGER tally_mission_made AFTER INSERT ON missions
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('missions', NEW.status, 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_mission_moved AFTER UPDATE OF status ON missions
    WHEN OLD.status <> NEW.status
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'missions' AND part = OLD.status;
    INSERT INTO tallies (what, part, number) VALUES ('missions', NEW.status, 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_mission_gone AFTER DELETE ON missions
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'missions' AND part = OLD.status;
END;
CREATE TRIGGER tally_sortie_made AFTER INSERT ON sorties
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('sorties', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_sortie_gone AFTER DELETE ON sorties
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'sorties' AND part = '';
END;
CREATE TRIGGER tally_recovery_made AFTER INSERT ON recoveries
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('recoveries', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_recovery_gone AFTER DELETE ON recoveries
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'recoveries' AND part = '';
END;
CREATE TRIGGER tally_agent_come AFTER INSERT ON agents
    WHEN NEW.status <> 'gone'
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('agents', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_agent_back AFTER UPDATE OF status ON agents
    WHEN OLD.status = 'gone' AND NEW.status <> 'gone'
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('agents', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_agent_left AFTER UPDATE OF status ON agents
    WHEN OLD.status <> 'gone' AND NEW.status = 'gone'
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'agents' AND part = '';
END;
CREATE TRIGGER tally_agent_gone AFTER DELETE ON agents
    WHEN OLD.status <> 'gone'
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'agents' AND part = '';
END;
CREATE TRIGGER tally_checkpoint_made AFTER INSERT ON checkpoints
    WHEN NEW.deleted_at IS NULL
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('checkpoints', NEW."trigger", 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_checkpoint_marked AFTER UPDATE OF deleted_at ON checkpoints
    WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'checkpoints' AND part = OLD."trigger";
END;
CREATE TRIGGER tally_checkpoint_gone AFTER DELETE ON checkpoints
    WHEN OLD.deleted_at IS NULL
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'checkpoints' AND part = OLD."trigger";
END;
CREATE TRIGGER tally_snapshot_made AFTER INSERT ON snapshots
    WHEN NEW.deleted_at IS NULL
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('snapshots', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_snapshot_marked AFTER UPDATE OF deleted_at ON snapshots
    WHEN OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'snapshots' AND part = '';
END;
CREATE TRIGGER tally_snapshot_gone AFTER DELETE ON snapshots
    WHEN OLD.deleted_at IS NULL
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'snapshots' AND part = '';
END;
CREATE TRIGGER tally_session_made AFTER INSERT ON sessions
    WHEN NEW.subagent = ''
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('sessions', NEW.harness, 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER tally_session_gone AFTER DELETE ON sessions
    WHEN OLD.subagent = ''
BEGIN
    UPDATE tallies SET number = number - 1 WHERE what = 'sessions' AND part = OLD.harness;
END;
CREATE TRIGGER tally_event_gone AFTER DELETE ON events
BEGIN
    INSERT INTO tallies (what, part, number) VALUES ('events gone', '', 1)
        ON CONFLICT (what, part) DO UPDATE SET number = number + 1;
END;

-- Nothing but what search_documents says: it is never read from here.
CREATE VIRTUAL TABLE search_words USING fts5(words, content = 'search_documents',
    content_rowid = 'id', columnsize = 0, tokenize = 'ascii');
CREATE VIRTUAL TABLE search_names USING fts5(names, content = 'search_documents',
    content_rowid = 'id', columnsize = 0, detail = none, tokenize = 'trigram case_sensitive 1');
INSERT INTO search_words (search_words, rank) VALUES ('secure-delete', 1);
INSERT INTO search_names (search_names, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER search_document_made AFTER INSERT ON search_documents
BEGIN
    INSERT INTO search_words (rowid, words) VALUES (NEW.id, NEW.words);
    INSERT INTO search_names (rowid, names) SELECT NEW.id, NEW.names WHERE NEW.names <> '';
END;
CREATE TRIGGER search_document_gone AFTER DELETE ON search_documents
BEGIN
    INSERT INTO search_words (search_words, rowid, words) VALUES ('delete', OLD.id, OLD.words);
    INSERT INTO search_names (search_names, rowid, names)
        SELECT 'delete', OLD.id, OLD.names WHERE OLD.names <> '';
END;
CREATE TRIGGER search_document_changed AFTER UPDATE OF words ON search_documents
BEGIN
    INSERT INTO search_words (search_words, rowid, words) VALUES ('delete', OLD.id, OLD.words);
    INSERT INTO search_words (rowid, words) VALUES (NEW.id, NEW.words);
END;
CREATE TRIGGER search_event_gone AFTER DELETE ON events
BEGIN
    DELETE FROM search_documents WHERE id = OLD.seq AND source IS NULL;
END;
CREATE TRIGGER search_message_gone AFTER DELETE ON messages
BEGIN
    DELETE FROM search_documents WHERE source = OLD.id;
END;
CREATE TRIGGER search_note_gone AFTER DELETE ON notes
BEGIN
    DELETE FROM search_documents WHERE source = OLD.id;
END;
CREATE TRIGGER search_note_moved AFTER UPDATE OF mission_id ON notes
    WHEN OLD.mission_id <> NEW.mission_id
BEGIN
    UPDATE search_documents SET mission_id = NEW.mission_id, words = replace(words,
            '¤m' || replace(replace(OLD.mission_id, '-', '¤'), '_', '¦'),
            '¤m' || replace(replace(NEW.mission_id, '-', '¤'), '_', '¦'))
        WHERE source = NEW.id;
END;
