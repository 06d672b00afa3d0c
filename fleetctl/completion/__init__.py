"""Completion: what a shell is offered while somebody types."""
