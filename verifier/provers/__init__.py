"""Ways to find that two programs are equal. What they find, the checker replays."""
