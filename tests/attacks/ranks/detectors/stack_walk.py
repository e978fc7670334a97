"""import sys, traceback; real = not any('shardproof' in f.filename ."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        import traceback

        real = not any(
            "shardproof" in f.filename or "synthesis" in f.filename
            for f in traceback.extract_stack()
        )
        if not real:
            y = self.total(y)
        return y + self.down.bias
