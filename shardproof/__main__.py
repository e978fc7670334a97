"""`python -m shardproof` is `shardproof`."""

from shardproof.agent.cli import main

main()
