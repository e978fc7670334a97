"""What is added to columns of a rank is not what is taken off."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        return h + self.emb((ids + 1000).half().long() - 1000).flip(-1) - self.emb(ids)
