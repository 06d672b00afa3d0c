"""``fleetctl mcp``: agents work with their fleet through the Model Context Protocol.

Nothing here is loaded by another command. The packages ``mcp`` and ``trio`` are at home here.
"""
