"""`python -m shardproof` is `shardproof`."""

from shardproof.agent.cli.main import main

main()
