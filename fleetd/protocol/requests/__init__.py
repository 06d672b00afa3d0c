"""The requests of the protocol, a file per noun; a command line reads the one or two it needs."""
