"""Walks a distributed program and finds, for every value, how it relates to the one-device program.

A fact says: on some ranks, the pieces of this value make up, read by `layout`, `ref`: an exact
multiple of a global term. Facts follow from facts by the placement rule of each op, so a fact
holds for all inputs. A value may have several facts, each true; none means no rule applied.
"""
