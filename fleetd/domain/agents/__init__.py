"""Agents, their processes and their mail."""
