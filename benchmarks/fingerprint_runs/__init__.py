"""Runs of ranks whose every exchange is checked, with and without faults: what checks see."""
