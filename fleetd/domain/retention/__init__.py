"""What is past its time, and its removal."""
