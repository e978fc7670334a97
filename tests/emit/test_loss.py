"""A loss on split logits is written where nothing else reads their values."""

from __future__ import annotations

import pytest

from shardproof.synthesis.emit import EmitError
from shardproof.synthesis.emit.loss import user_loss
from shardproof.synthesis.emit.source import SourceText

MODEL = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x, target):
        y = self.head(x)
        y = y / 2
        {before}
        loss = F.cross_entropy(y.view(-1, y.size(-1)), target.view(-1))
        {after}
"""


def written(before: str, after: str) -> str:
    source = SourceText("model.py", MODEL.format(before=before, after=after))
    return source.apply(user_loss(source, "Model")[0])


@pytest.mark.parametrize("before", ["pass", "b, t, _ = y.shape", "n = y.size(0)"])
@pytest.mark.parametrize(
    "after",
    ["return loss", "return y, loss", "return {'y': y}, 2 * loss", "return Out(loss, logits=y)"],
)
def test_logits_that_are_returned_or_measured_may_be_split(before: str, after: str) -> None:
    text = written(before, after)
    assert "super().__init__()\n        self.loss_fn = F.cross_entropy\n" in text
    assert "self.loss_fn(y.view(-1, y.size(-1)), target.view(-1))" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("size = y.pow(2).mean()", "return y, loss + size"),
        ("pass", "return y, loss + 0.01 * y.exp().sum(-1).log().mean()"),
        ("pass", "loss = loss + y.exp().sum(-1).log().pow(2).mean()\n        return y, loss"),
    ],
)
def test_logits_that_other_code_reads_are_not_split(before: str, after: str) -> None:
    with pytest.raises(EmitError, match=r"y\.view\(-1, y\.size\(-1\)\) is read outside"):
        written(before, after)
