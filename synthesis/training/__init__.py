"""Training steps as pairs of programs: one device, and every rank of a mesh."""
