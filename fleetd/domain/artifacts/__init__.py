"""Records that have a row and a file: outbox, inventory, ingest, repair, removal."""
