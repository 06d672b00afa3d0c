"""Machines that share a store: membership, heartbeat, failover."""
