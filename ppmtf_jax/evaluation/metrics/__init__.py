"""Metrics of utility; every file registers its own.

A distribution of synthetic traces is compared with that of the test users, whom no synthesizer saw. `groups` alone
compares with training users. population, transitions and visits are the published metrics (Murakami et al. 2021,
section 4.3) with the conventions of the published evaluation: total variation is half the L1 distance, a slot without
events counts as uniform, a place that nobody leaves as a place where everybody stays. The other files compare windows
of one period.
"""
