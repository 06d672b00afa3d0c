"""Hooks: delivery, their queue and spool, the facts that they need, and the check of locks."""
