-- Locks on directories and patterns, shared locks, and locks that edits take by themselves.
-- directory is the key of the directory that such a lock lies in, with the slash; NULL for a file.
-- Behind it, normalized_path goes on with the pattern; nothing follows for the whole directory.
ALTER TABLE locks ADD COLUMN mode TEXT NOT NULL DEFAULT 'exclusive'
    CHECK (mode IN ('exclusive', 'shared'));
ALTER TABLE locks ADD COLUMN directory TEXT;
ALTER TABLE locks ADD COLUMN automatic INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lock_waits ADD COLUMN mode TEXT NOT NULL DEFAULT 'exclusive';
ALTER TABLE lock_waits ADD COLUMN directory TEXT;
-- Two agents never hold one file, or the same pattern, exclusively: the index makes it true. The
-- rules see to what only overlaps.
DROP INDEX idx_locks_active;
CREATE UNIQUE INDEX idx_locks_active ON locks (
    normalized_path, (CASE mode WHEN 'exclusive' THEN coalesce(directory, '') ELSE id END)
) WHERE status = 'active';
CREATE INDEX idx_locks_directory ON locks (directory)
    WHERE status = 'active' AND directory IS NOT NULL;
CREATE INDEX idx_lock_waits_directory ON lock_waits (directory) WHERE directory IS NOT NULL;
