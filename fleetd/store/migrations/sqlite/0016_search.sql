-- Full-text search: what events, messages and notes say, a row each, in the order of the log.
CREATE TABLE search_documents (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL
        CHECK (kind IN ('event', 'mail', 'note', 'prompt', 'answer', 'command', 'file')),
    source TEXT,
    at TEXT NOT NULL,
    mission_id TEXT,
    agent_id TEXT,
    words TEXT NOT NULL,
    names TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX idx_search_documents_source ON search_documents (source)
    WHERE source IS NOT NULL;
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
-- What is there already is indexed by a job, batch by batch, from here downwards.
INSERT INTO store_meta (key, value)
    SELECT 'search_backlog', CAST(max(seq) AS TEXT) FROM
        (SELECT max(seq) AS seq FROM events UNION ALL SELECT max(seq) FROM messages
            UNION ALL SELECT max(seq) FROM notes) WHERE seq IS NOT NULL HAVING max(seq) IS NOT NULL;
