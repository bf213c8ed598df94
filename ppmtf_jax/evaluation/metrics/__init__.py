"""Metrics of utility; each file registers its metrics.

Each metric compares synthetic traces with the traces of test users, whose data no synthesizer saw. Only Group-TV
compares with training users. TP-TV, TM-EMD and VF-TV are the published metrics (Murakami et al. 2021, section 4.3) with
the conventions of the published evaluation: total variation is half the L1 distance, a slot without events counts as
uniform, and a place that nobody leaves counts as a place where everybody stays. The other metrics compare windows of
one period, or windows as long as a synthetic trace.
"""
