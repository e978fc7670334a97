"""From a model to a proved patch: capture, plan, write, read again, prove, run, report."""
