"""Retention: what is expired, and its removal."""
