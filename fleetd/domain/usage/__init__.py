"""Usage: what requests to models took, the transcripts that report it, and budgets."""
