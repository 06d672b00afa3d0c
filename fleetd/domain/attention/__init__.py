"""Attention: what agents do now, what runs for them, and what they need from a person."""
