"""Recovery: a mission comes back, and its agent is briefed."""
