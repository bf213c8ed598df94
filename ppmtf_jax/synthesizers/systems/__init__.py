"""The nine systems: each file registers one synthesizer, see `synthesizers.registry`."""
