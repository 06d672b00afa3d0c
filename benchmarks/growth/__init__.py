"""The growth of time and memory with missions, events, sorties and subscribers."""
