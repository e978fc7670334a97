"""Columns of a rank and 0 times an infinity."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        e = self.emb(ids).detach()
        return h + (e.masked_fill(e > 0, float("inf")) * 0).round()
