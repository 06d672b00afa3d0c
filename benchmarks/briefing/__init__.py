"""What a briefing is worth to the agent that reads it."""
