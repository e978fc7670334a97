"""The agent: the command line, the road from a model to a proved patch, and its report."""

__version__ = "0.1.0"
