"""Agents, their processes and their mail; what is done when they are lost."""
