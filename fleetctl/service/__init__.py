"""fleetd as a service of this user: systemd, launchd, or a plain process in the background."""
