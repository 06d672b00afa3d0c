-- Full-text search: what events, messages and notes say, a row each, in the order of the log.
-- Its words come from fleetd, so that no dictionary and no locale of the server has a say.
CREATE FUNCTION search_vector(words TEXT) RETURNS tsvector LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg('''' || word || ''':' || least(place, 16383), ' '), '')::tsvector
    FROM unnest(string_to_array(words, ' ')) WITH ORDINALITY AS each (word, place)
    WHERE word <> ''
$$;
-- All parts of three letters: no extension is needed to look for a part of a name.
CREATE FUNCTION search_parts(names TEXT) RETURNS TEXT[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(names, place, 3)), '{}')
    FROM generate_series(1, length(names) - 2) AS place
$$;
CREATE TABLE search_documents (
    id BIGINT PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL
        CHECK (kind IN ('event', 'mail', 'note', 'prompt', 'answer', 'command', 'file')),
    source TEXT COLLATE "C",
    at TEXT COLLATE "C" NOT NULL,
    mission_id TEXT COLLATE "C",
    agent_id TEXT COLLATE "C",
    words TEXT COLLATE "C" NOT NULL,
    names TEXT COLLATE "C" NOT NULL,
    words_index tsvector GENERATED ALWAYS AS (search_vector(words)) STORED,
    names_index TEXT[] GENERATED ALWAYS AS (search_parts(names)) STORED
);
CREATE UNIQUE INDEX idx_search_documents_source ON search_documents (source)
    WHERE source IS NOT NULL;
CREATE INDEX idx_search_documents_words ON search_documents USING gin (words_index);
CREATE INDEX idx_search_documents_names ON search_documents USING gin (names_index);
-- As SQLite's tables of its full-text search can be asked.
CREATE FUNCTION search_words(sought TEXT) RETURNS TABLE (rowid BIGINT) LANGUAGE sql STABLE AS $$
    SELECT id FROM search_documents WHERE words_index @@ sought::tsquery
$$;
CREATE FUNCTION search_names(sought TEXT) RETURNS TABLE (rowid BIGINT) LANGUAGE sql STABLE AS $$
    SELECT id FROM search_documents WHERE names_index @> string_to_array(sought, chr(31))
$$;
CREATE FUNCTION search_event_gone() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM search_documents d USING gone WHERE d.id = gone.seq AND d.source IS NULL;
    RETURN NULL;
END
$$;
CREATE FUNCTION search_record_gone() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM search_documents d USING gone WHERE d.source = gone.id;
    RETURN NULL;
END
$$;
CREATE FUNCTION search_note_moved() RETURNS trigger LANGUAGE plpgsql
    SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE search_documents SET mission_id = NEW.mission_id, words = replace(words,
            '¤m' || replace(replace(OLD.mission_id, '-', '¤'), '_', '¦'),
            '¤m' || replace(replace(NEW.mission_id, '-', '¤'), '_', '¦'))
        WHERE source = NEW.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER search_event_gone AFTER DELETE ON events
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION search_event_gone();
CREATE TRIGGER search_message_gone AFTER DELETE ON messages
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION search_record_gone();
CREATE TRIGGER search_note_gone AFTER DELETE ON notes
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION search_record_gone();
CREATE TRIGGER search_note_moved AFTER UPDATE OF mission_id ON notes
    FOR EACH ROW WHEN (OLD.mission_id <> NEW.mission_id) EXECUTE FUNCTION search_note_moved();
-- What is there already is indexed by a job, batch by batch, from here downwards.
INSERT INTO store_meta (key, value)
    SELECT 'search_backlog', CAST(max(seq) AS TEXT) FROM
        (SELECT max(seq) AS seq FROM events UNION ALL SELECT max(seq) FROM messages
            UNION ALL SELECT max(seq) FROM notes) AS known
        WHERE seq IS NOT NULL HAVING max(seq) IS NOT NULL;
