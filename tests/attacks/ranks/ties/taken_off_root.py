"""What is added and taken off is no number where it is negative."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        e = self.emb(ids).sqrt()
        return h + e - e
