"""Output: text, tables, pages and times for a terminal."""
