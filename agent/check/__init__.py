"""`shardproof check`: parallel modules that people have, held to the model they must equal."""
