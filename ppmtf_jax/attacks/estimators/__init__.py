"""How an attacker learns each user's transition matrix from few traces; one file each, found by its name."""
