"""Faults put into the verifier itself: what its provers let through then, and what finds it."""
