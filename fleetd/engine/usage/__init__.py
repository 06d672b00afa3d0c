"""Usage: reads transcripts in portions, beside the other work."""
