"""An offline evaluation: which facts of a session its briefing contains, and what else."""
