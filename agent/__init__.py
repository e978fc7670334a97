"""The agent: the command line, the pipeline from a model to a proved patch, and its report."""

__version__ = "0.1.0"
