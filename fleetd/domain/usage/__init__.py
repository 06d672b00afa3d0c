"""Usage: what requests to models took, the transcripts that tell it, and budgets."""
