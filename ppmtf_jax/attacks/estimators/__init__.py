"""Estimators of each user's transition matrix from few traces; `base.ESTIMATORS` finds them all by name."""
