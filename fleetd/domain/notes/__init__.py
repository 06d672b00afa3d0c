"""Notes that last: decisions, what is ruled out, constraints, findings; and facts of sessions."""
