"""The price of parallel configurations against published measurements."""
