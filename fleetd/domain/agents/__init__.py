"""Agents, their processes and their mail, and the handling of lost agents."""
