"""Terms that are equal though their normal forms differ: laws of tensor algebra, step by step."""
