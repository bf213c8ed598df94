"""What an attacker estimates of each user."""
