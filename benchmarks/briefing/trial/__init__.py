"""A live trial: agent CLIs go on after a compaction, with and without a briefing."""
