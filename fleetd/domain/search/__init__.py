"""Full-text search: what is searchable, its index, the query language, hits."""
