"""The one language for sequential and distributed programs."""
