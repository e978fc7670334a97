"""The one place that asks Z3."""
