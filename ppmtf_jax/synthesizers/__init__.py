"""Synthesizers: each is a file here that registers itself, see `registry`."""
