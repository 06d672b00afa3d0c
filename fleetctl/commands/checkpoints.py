"""``fleetctl checkpoints``: another spelling of the commands below ``fleetctl checkpoint``."""

from .checkpoint import register_plural as register

__all__ = ["register"]
