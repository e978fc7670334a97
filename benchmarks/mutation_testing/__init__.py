"""Tries the verifier on thousands of wrong and right variants of known-right parallel programs."""
