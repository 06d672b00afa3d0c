"""Missions and their sorties."""
