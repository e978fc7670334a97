"""Programs in time: what each rank does on its streams, and whether the order can go wrong."""
