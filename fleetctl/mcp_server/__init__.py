"""``fleetctl mcp``: agents work with their fleet through the Model Context Protocol.

No other command loads this package. It is the only user of the packages ``mcp`` and ``trio``.
"""
