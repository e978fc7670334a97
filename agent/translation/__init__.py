"""Translations of code that capture cannot take, and what binds them to the code."""
