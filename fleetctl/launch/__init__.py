"""Start of agent CLIs: resume a session, or begin one with a first prompt.

``commands`` builds the command. ``run`` prints it, opens tmux windows, or becomes the CLI.
"""
