"""The cost of a store that several daemons share: compared with a private store, and by number."""
