"""Secrets are replaced on the way in: which texts, which shapes and names, which values."""
