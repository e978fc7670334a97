"""What is added and taken off is looked up beyond the table, at which PyTorch raises."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        return h + self.emb(ids + 5) - self.emb(ids + 5)
