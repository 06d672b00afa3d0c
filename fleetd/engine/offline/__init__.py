"""``fleetd --restore``: puts a copy of the database in its place while no daemon runs.

Three steps: look (nothing changes), prepare (beside the database), swap (by names alone).
"""
