"""Offline: which facts of a session stand in its briefing, and what else stands there."""
