"""The value of a briefing for the agent that reads it."""
