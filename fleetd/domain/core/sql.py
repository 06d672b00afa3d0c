"""Parts of SQL statements: lists of parameters and constants, and conditions on texts."""

# The states of agents that count as living.
LIVING = "('active', 'waiting', 'idle')"
