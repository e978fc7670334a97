"""Collectives in the order of a set of strings."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "the order of a set"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return y, y * 2


class P(Split):
    def forward(self, x):
        parts = {"ab": self.part(x), "cd": self.part(x) * 2}
        out = {}
        for k in {"ab", "cd"}:
            out[k] = self.total(parts[k])
        return out["ab"] + self.down.bias, out["cd"] + self.down.bias * 2
