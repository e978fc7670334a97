"""Ids past 2048 through float16."""

from tests.attacks.blocks import SplitWords, Words, words

TRUE = "wrong"
M = Words
example_inputs = words


class P(SplitWords):
    def seam(self, ids, h):
        return h + self.emb((ids + 3001).half().long() - 3001) - self.emb(ids)
