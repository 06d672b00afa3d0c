"""A live trial: agent CLIs continue after a compaction, with and without a briefing."""
