"""Pages of one record or one result."""
