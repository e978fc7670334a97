"""Describes repeated blocks once: isomorphic layers become one `scan` forward and one backward."""
