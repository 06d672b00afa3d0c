-- The newest event of a mission that tells of work: whoever asks need not walk back over the
-- checkpoints and tool calls since. The types are NO_DEEDS in domain/core/event_log.
ALTER TABLE missions ADD COLUMN last_deed_seq INTEGER NOT NULL DEFAULT 0;
UPDATE missions SET last_deed_seq = coalesce((SELECT e.seq FROM events e
    WHERE e.mission_id = missions.id AND e.activity = 1 AND e.seq <= missions.last_activity_seq
    AND e.type NOT IN (
        'fleet_checkpointed', 'message_acked', 'agent_registered', 'agent_deregistered',
        'agent_paused', 'agent_resumed', 'lock_renewed', 'tool_started', 'tool_finished')
    ORDER BY e.seq DESC LIMIT 1), 0);
DROP INDEX idx_events_deeds;
CREATE INDEX idx_events_deeds ON events (mission_id, agent_id, seq)
    WHERE activity = 1 AND agent_id IS NOT NULL AND type NOT IN (
        'fleet_checkpointed', 'message_acked', 'agent_registered', 'agent_deregistered',
        'agent_paused', 'agent_resumed', 'lock_renewed', 'tool_started', 'tool_finished');
-- By mission, only checkpoints that are not deleted are asked for: idx_checkpoints_live has them.
DROP INDEX idx_checkpoints_mission;
-- Nobody asks for checkpoints by their time: a clock can be stepped back.
DROP INDEX idx_checkpoints_timestamp;
-- The newest milestone and the oldest error of a mission are found however many others there are.
DROP INDEX idx_checkpoints_trigger;
CREATE INDEX idx_checkpoints_trigger ON checkpoints (trigger, mission_id, seq)
    WHERE deleted_at IS NULL;
