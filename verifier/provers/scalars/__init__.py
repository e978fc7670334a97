"""Every rank run on entries, every entry of every output compared: no placement rule.

What is found holds for the extents and the mesh at hand, for all float inputs. It is for small
extents, where a program is written so differently that no relation is found.
"""
