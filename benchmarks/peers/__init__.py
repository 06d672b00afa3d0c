"""Peers that do the same work, measured in the same run: environments, processes, programs."""
