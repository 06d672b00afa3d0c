"""Notifications: tell a person which agent needs something, over channels outside of fleetd.

``fleetctl notify run`` is a program of its own. The daemon itself sends nothing anywhere.
"""
