"""Redaction of secrets in incoming data: which texts, which shapes and names, which values."""
