"""Commands that run while no daemon does: ``fleetd --restore`` and ``fleetd --migrate``.

A restore has three steps: look (nothing changes), prepare (beside the database), swap (only
renames).
"""
