"""Synthesizers: each file of this folder registers one synthesizer, see `registry`."""
