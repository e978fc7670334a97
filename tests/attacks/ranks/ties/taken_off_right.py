"""What is added to columns of a rank is taken off again, through a lookup."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "right"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        return h + self.emb((ids + 1000).half().long() - 1000) - self.emb(ids)
