"""The one place that asks Z3, and the lemmas that it proves."""
