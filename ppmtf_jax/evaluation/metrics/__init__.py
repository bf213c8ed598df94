"""Metrics of utility, a file each or a few of a kind; every one registers itself.

Each says by its direction which numbers are better: lower for distances, closest to 0 for differences that have a sign.
A distribution is compared with that of the test users, whom no synthesizer saw; that of a group of training users with
what these are known to do.

population, transitions and visits are as published (Murakami et al. 2021, section 4.3), with the conventions of the
published evaluation: total variation is half the L1 distance, a slot without events counts as the uniform distribution,
a place never left as one that is always stayed at. mobility and groups look at windows of one period.
"""
