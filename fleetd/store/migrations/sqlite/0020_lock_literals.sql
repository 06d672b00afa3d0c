-- The longest text without a wildcard in a lock's pattern: no file whose path lacks it is covered.
-- Empty for files and whole directories, and for patterns from before: any path may be covered.
ALTER TABLE locks ADD COLUMN literal TEXT NOT NULL DEFAULT '';
DROP INDEX idx_locks_directory;
CREATE INDEX idx_locks_directory ON locks (directory, literal)
    WHERE status = 'active' AND directory IS NOT NULL;
