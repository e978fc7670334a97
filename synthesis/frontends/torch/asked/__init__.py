"""What the user's code asks of tensors, and catches, while it is traced."""
