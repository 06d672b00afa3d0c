-- Where a session began, and what its directory was when it was heard of last: it can be opened
-- again there, and what has changed since can be named. "vanished" says that its process ended
-- without a word.
ALTER TABLE sessions ADD COLUMN directory TEXT;
ALTER TABLE sessions ADD COLUMN cwd TEXT;
ALTER TABLE sessions ADD COLUMN worktree TEXT;
ALTER TABLE sessions ADD COLUMN branch TEXT;
ALTER TABLE sessions ADD COLUMN head TEXT;
ALTER TABLE sessions ADD COLUMN vanished INTEGER NOT NULL DEFAULT 0;
CREATE INDEX idx_sessions_vanished ON sessions (last_event_at) WHERE vanished = 1;
