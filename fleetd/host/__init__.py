"""This computer: clock, processes, Git, paths, private directories, locks, systemd, files."""
