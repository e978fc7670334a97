"""`bench repair`: wrong programs, repaired and proved, with and without a model."""
