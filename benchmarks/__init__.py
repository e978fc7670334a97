"""Measurements that anyone can repeat; the numbers in `docs/` come from here."""
