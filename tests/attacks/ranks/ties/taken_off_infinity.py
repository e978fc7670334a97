"""What is added and taken off is infinite."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        e = self.emb(ids).detach()
        e = e.masked_fill(e > 0, float("inf"))
        return h + e - e
