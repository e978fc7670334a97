"""shardproof: PyTorch models made parallel, and proved right."""
