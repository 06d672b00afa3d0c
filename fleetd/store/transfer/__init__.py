"""Store migration: moves all rows between SQLite and PostgreSQL."""
