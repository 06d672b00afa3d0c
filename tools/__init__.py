"""What makes files of the repository from its code; no part of what is installed."""
