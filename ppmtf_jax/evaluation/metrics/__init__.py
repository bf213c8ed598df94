"""Metrics of utility (Murakami et al. 2021, section 4.3), a file each; every one registers itself.

All of them are lower for better traces. A distribution is compared with that of the test users, whom no synthesizer
saw. Conventions are those of the published evaluation: total variation is half the L1 distance, a slot without events
counts as the uniform distribution, a place never left as one that is always stayed at.
"""
