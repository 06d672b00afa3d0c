"""Attention: what agents do now, what runs for them, and what they need of a person."""
