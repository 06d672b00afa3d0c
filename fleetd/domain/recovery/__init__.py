"""Recovery: restores a mission and briefs its agent."""
