"""Columns of a rank and 0 times a lookup, rounded."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "right"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        return h + (self.emb(ids).detach() * 0).round()
