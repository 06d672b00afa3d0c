"""Hooks: delivery, their queue and spool, what they need to know, the guard of locks."""
