"""SQLite's part of the search index: the two tables of its full-text search.

They contain only what ``search_documents`` contains, and triggers keep them up to date. FTS5
removes a document from its pages with the transaction (``secure-delete``). The separators of its
pages may still hold the beginning of a deleted word; only a rebuild removes every byte.
"""

import apsw

DOCUMENTS = "search_documents"
_REBUILD = (
    "INSERT INTO search_words (search_words) VALUES ('rebuild')",
    "INSERT INTO search_names (search_names) VALUES ('rebuild')",
)
_CHECKS = (
    "INSERT INTO search_words (search_words, rank) VALUES ('integrity-check', 1)",
    "INSERT INTO search_names (search_names, rank) VALUES ('integrity-check', 1)",
)


def rebuild(connection: apsw.Connection) -> None:
    """Rebuild the index from its documents."""
    for statement in _REBUILD:
        connection.execute(statement)


def damage_of(connection: apsw.Connection) -> list[str]:
    """Compare the index with its documents; writes nothing, but blocks other writers meanwhile."""
    for statement in _CHECKS:
        try:
            connection.execute(statement)
        except apsw.CorruptError:
            return [f"the index does not hold what {DOCUMENTS} says"]
    return []
