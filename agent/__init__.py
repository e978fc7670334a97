"""The agent: the command line, the road from a model to a proved patch, and its report."""
