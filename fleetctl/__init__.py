"""fleetctl: the command line of fleetd."""
