"""Every rank run on expressions, every element of every output compared: no placement rule.

What is found holds for the extents and the mesh at hand, for all float inputs. `decide` compares
canonical forms (`verifier/domains/algebra`) and knows laws of the real functions. It is for small
extents, where a program is written so differently that no relation is found.
"""
