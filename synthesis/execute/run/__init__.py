"""Runs the owner's code on real processes: one device and every rank of a mesh, compared.

`launch.py` and `rank.py` are copied beside a run and import nothing of shardproof.
"""
