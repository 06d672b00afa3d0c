"""fleetctl: the command line of fleetd; imports its wire, paths and config and nothing else."""
