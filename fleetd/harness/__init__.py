"""Adapters, one per agent CLI: they turn its hooks into reports, and answers into its replies."""
