"""The way into the store: requests, rules, files, hooks and jobs around one transaction."""
