"""Checkpoints: taking, keeping, finding and comparing them."""
