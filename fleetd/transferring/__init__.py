"""``fleetd --migrate``: moves the store to a server that machines share, or back, or compares both.

While no daemon of this machine runs. What is written is there whole or not at all.
"""
