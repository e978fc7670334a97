"""The values a program can be run on: floats, a prime field, Z3 expressions."""
