-- Nothing that is asked often may grow with what it does not ask for.

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

INSERT INTO tallies (what, part, number)
    SELECT 'missions', status, count(*) FROM missions GROUP BY status;
INSERT INTO tallies (what, number) SELECT 'sorties', count(*) FROM sorties;
INSERT INTO tallies (what, number) SELECT 'agents', count(*) FROM agents WHERE status <> 'gone';
INSERT INTO tallies (what, number) SELECT 'recoveries', count(*) FROM recoveries;
INSERT INTO tallies (what, part, number)
    SELECT 'checkpoints', "trigger", count(*) FROM checkpoints WHERE deleted_at IS NULL
    GROUP BY "trigger";
INSERT INTO tallies (what, number)
    SELECT 'snapshots', count(*) FROM snapshots WHERE deleted_at IS NULL;
INSERT INTO tallies (what, part, number)
    SELECT 'sessions', harness, count(*) FROM sessions WHERE subagent = '' GROUP BY harness;
INSERT INTO tallies (what, number)
    SELECT 'events gone', coalesce(max(seq), 0) - count(*) FROM events;

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

-- A list of missions is read from its index, newest first, page by page.
CREATE INDEX idx_missions_created ON missions (created_at DESC, id);
CREATE INDEX idx_missions_listed ON missions (status, created_at DESC, id);
-- Which mission a directory belongs to is asked for the directory and those above it.
CREATE INDEX idx_missions_project ON missions (project_dir, created_at DESC, id)
    WHERE project_dir IS NOT NULL;
CREATE INDEX idx_missions_place ON missions (project_dir, status, created_at DESC, id)
    WHERE project_dir IS NOT NULL;

-- Whose work an agent took over: asked at every briefing.
CREATE INDEX idx_agents_succeeded ON agents (succeeded_by) WHERE succeeded_by IS NOT NULL;
-- Of a status; those that are gone are most, and nobody asks for them.
CREATE INDEX idx_agents_here ON agents (status, id) WHERE status <> 'gone';
-- Whose processes are to be watched, at the start.
CREATE INDEX idx_agents_process ON agents (id) WHERE pid IS NOT NULL;

-- Of any status: a mission that is deleted, or recovered, asks for those that ended too.
DROP INDEX idx_locks_holder;
DROP INDEX idx_locks_mission;
CREATE INDEX idx_locks_holder ON locks (held_by, status);
CREATE INDEX idx_locks_mission ON locks (mission_id, status);
-- What ended long enough ago to be dropped.
CREATE INDEX idx_locks_ended ON locks (released_at) WHERE status <> 'active';

CREATE INDEX idx_messages_seq ON messages (seq);
CREATE INDEX idx_recoveries_seq ON recoveries (seq);
CREATE INDEX idx_sessions_briefed ON sessions (briefed_by) WHERE briefed_by IS NOT NULL;

-- In the order in which it is worked off, and with all that is asked: it is nearly always empty, and
-- without this every checkpoint was read to find that out.
DROP INDEX idx_checkpoints_outbox;
CREATE INDEX idx_checkpoints_outbox ON checkpoints (seq, id, mission_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;
DROP INDEX idx_snapshots_outbox;
CREATE INDEX idx_snapshots_outbox ON snapshots (seq, id, run_id, backed_up_at, deleted_at)
    WHERE backed_up_at IS NULL OR deleted_at IS NOT NULL;

-- Events of no mission, of which a log that is taken over has thousands, need no place in these.
DROP INDEX idx_events_mission;
DROP INDEX idx_events_kind;
CREATE INDEX idx_events_mission ON events (mission_id, seq) WHERE mission_id IS NOT NULL;
CREATE INDEX idx_events_kind ON events (mission_id, type, seq) WHERE mission_id IS NOT NULL;

-- What an agent did last in a mission, of whatever else there is of either.
CREATE INDEX idx_events_deeds ON events (mission_id, agent_id, seq)
    WHERE activity = 1 AND agent_id IS NOT NULL;
