"""Ways into the IR: PyTorch models and ranks, tensor programs, programs of single ranks."""
