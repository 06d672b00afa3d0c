"""The files of records: written, compared, repaired, removed."""
