"""Starts agent CLIs: opens a session again, or begins one with a first prompt.

``commands`` says what to run, ``run`` prints it, opens windows of tmux, or becomes the CLI.
"""
