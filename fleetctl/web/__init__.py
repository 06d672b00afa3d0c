"""The fleet in a browser: a read-only HTTP server for this user, beside the daemon."""
