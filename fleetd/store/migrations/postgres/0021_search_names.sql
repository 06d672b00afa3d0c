-- Parts of names are in the index only, by their bytes. A column of them made each document larger,
-- and its parts were compared by the language of the database. GIN leaves out what comes twice.
-- SQLite has no such columns, and no migration of this number.
DROP INDEX idx_search_documents_names;
ALTER TABLE search_documents DROP COLUMN names_index;
CREATE OR REPLACE FUNCTION search_parts(names TEXT) RETURNS TEXT[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    parts TEXT[] := '{}';
BEGIN
    FOR place IN 1 .. length(names) - 2 LOOP
        parts[place] := substr(names, place, 3);
    END LOOP;
    RETURN parts;
END $$;
CREATE INDEX idx_search_documents_names ON search_documents USING gin (search_parts(names));
CREATE OR REPLACE FUNCTION search_names(sought TEXT) RETURNS TABLE (rowid BIGINT)
    LANGUAGE sql STABLE AS $$
    SELECT id FROM search_documents
    WHERE search_parts(names) @> string_to_array(sought, chr(31))
$$;
