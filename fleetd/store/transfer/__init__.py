"""Carries a whole store to one of another engine, row by row; must not know the rules."""
