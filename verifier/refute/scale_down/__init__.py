"""The same pair of programs at small extents, so that large programs can be compared on numbers."""
