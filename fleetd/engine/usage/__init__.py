"""Usage: transcripts are read in portions beside the work."""
