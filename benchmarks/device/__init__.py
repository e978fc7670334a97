"""What one GPU does: kernels by shape, a rank at true extents, patches and the guard."""
