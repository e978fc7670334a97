"""What may be asked of shardproof: each action declared once, for all entrances."""
