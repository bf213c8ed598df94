"""Estimators of each user's transition matrix from few traces; one file for each estimator, found by its name."""
