"""The event log as clients use it: streams and cursors."""
