"""Synthesizers: the registry, models in folders, synthesis; the nine systems are in `systems`."""
