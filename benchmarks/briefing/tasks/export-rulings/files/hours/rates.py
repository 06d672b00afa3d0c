"""What an hour of each project costs, in cents."""

RATES = {"atlas": 9_600, "borealis": 12_000, "cygnus": 7_400}
