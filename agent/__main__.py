"""`python -m agent` is `shardproof`."""

from agent.cli import main

main()
