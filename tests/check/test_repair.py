"""Wrong modules repaired in their source, and layouts under which refuted ones agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shardproof.agent.check import in_source, judging, layouts
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.in_source import Asking, InSource
from shardproof.agent.check.judging import Compared
from shardproof.agent.patching.tree import apply_texts, undo
from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.request import RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured, load
from shardproof.verifier.verdict import Proof

pytestmark = pytest.mark.torch


def traced(request: RanksRequest, folder: Path) -> Sequence[RanksCaptured]:
    from shardproof.synthesis.frontends.torch.ranks import session

    session.save_ranks(json.loads(json.dumps(request.to_json())), folder, lambda _: None)
    return load(folder)


def asked(case) -> Asking:
    request = RanksRequest(
        f"{case.folder}/{case.target}",
        f"{case.folder}/{case.against}",
        case.mesh,
        after_backward=case.after_backward,
        modes=tuple(case.modes),
    )
    return Asking(request, Statements(), Compared(), traced)


def repaired(case) -> tuple[InSource | None, int]:
    """What is found, and after how many changes."""
    found = case.refuted()
    edits = judging.edits_for(found, 3)
    tried = list(in_source.repaired(asked(case), found, edits))
    return next((t for t in tried if t is not None), None), len(tried)


def test_a_bias_on_every_rank_moves_behind_the_sum_and_is_undone(case, tmp_path) -> None:
    wrong = case(target="wrong.py:WrongMLP")
    found, _ = repaired(wrong)
    assert found is not None
    assert found.place.startswith("wrong.py:")
    assert "+        y = Reduce.apply(y, self.group) + self.down.bias" in found.diff
    path = wrong.folder / "wrong.py"
    before, state = path.read_text(), tmp_path / "state"
    assert found.before == before
    given = (found.diff, {"wrong.py": (before, found.rewrite.text)}, found.sources, wrong.folder)
    apply_texts(*given, state)
    wrong.proved()
    undo(wrong.folder, state)
    assert path.read_text() == before
    (wrong.folder / "regions.py").write_text("# edited since\n")
    with pytest.raises(InputError):
        apply_texts(*given, state)
    assert path.read_text() == before


SPLIT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return 2 * self.up(x)


class Wrong(Model):
    def forward(self, x):
        return self.up(x)


def example_inputs():
    return {"x": torch.randn(4, 8)}
"""


def test_the_model_is_not_made_as_wrong_as_the_module(case, tmp_path) -> None:
    """Without the factor both would agree: that is no repair."""
    wrong = case(against="wrong.py:Model").write(SPLIT)
    found = wrong.refuted()
    text = (wrong.folder / "wrong.py").read_text()
    from shardproof.synthesis.repair.in_source import Rewrite

    same = text.replace("2 * self.up(x)", "self.up(x)")
    worse = Rewrite("wrong.py", 1, "scale", same)

    def proved(rewrite: Rewrite) -> Proof | None:
        asking, copy = asked(wrong), tmp_path / rewrite.tactic
        request = in_source._in_copy(asking.request, wrong.folder, copy, rewrite)
        return in_source._proved(asking, found, request)

    assert proved(worse) is None
    better = text.replace("return self.up(x)", "return 2 * self.up(x)")
    assert proved(replace(worse, tactic="number", text=better)) is not None


def test_a_model_is_compared_with_what_it_was_in_each_mode(case) -> None:
    found = case().proved().captured
    more = replace(found.one, program=replace(found.one.program, outputs=()))
    other = replace(found, one=more, modes=("other",))
    assert in_source._same_models([found, other], [found, other])
    assert not in_source._same_models([replace(other, modes=found.modes)], [found, other])
    assert not in_source._same_models([other], [found])


def test_nothing_is_tried_on_what_is_not_refuted(case) -> None:
    right = case()
    tried = list(in_source.repaired(asked(right), right.proved(), ()))
    assert tried == []


FUSED = """
class Model(nn.Module):
    def __init__(self, n=1):
        super().__init__()
        self.gu = nn.Linear(8, 32 // n)
        self.down = nn.Linear(16 // n, 8)

    def forward(self, x):
        g, u = self.gu(x).chunk(2, -1)
        return self.down(F.relu(g) * u)


class Wrong(Model):
    def __init__(self, tp_size, tp_group):
        super().__init__(tp_size)
        self.group = tp_group

    def forward(self, x):
        g, u = self.gu(Copy.apply(x, self.group)).chunk(2, -1)
        y = F.linear(F.relu(g) * u, self.down.weight)
        return {factor}Reduce.apply(y, self.group) + self.down.bias


def example_inputs():
    return {{"x": torch.randn(4, 8)}}
"""


@pytest.mark.parametrize("factor", ["", "2 * "])
def test_the_layout_of_a_fused_weight_is_proposed(case: Callable[..., object], factor: str) -> None:
    wrong = case(against="wrong.py:Model").write(FUSED.format(factor=factor))
    said = [s for s in layouts.agreeing(wrong.refuted(), Statements(), Compared()) if s]
    expected = ["--layout 'gu.weight=[2 2@tp 8][8]' --layout 'gu.bias=[2 2@tp 8]'"]
    assert said[:1] == ([] if factor else expected)
    if said:
        wrong.layouts = ["gu.weight=[2 2@tp 8][8]", "gu.bias=[2 2@tp 8]"]
        wrong.proved()
