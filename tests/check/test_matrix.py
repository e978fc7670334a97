"""Right modules are proved; wrong ones are refuted at the line that is wrong."""

from __future__ import annotations

import pytest

from shardproof.agent.check.contract import placement
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch


def test_column_and_row_parallel(case):
    found = case().proved()
    mesh = Mesh.of(tp=2)
    placed = {p.name: (placement(p.layout, mesh), p.how) for p in found.placed}
    assert placed == {
        "norm.weight": ("R", "from its shape"),
        "norm.bias": ("R", "from its shape"),
        "up.weight": ("S(0)@tp", "from its shape"),
        "up.bias": ("S(0)@tp", "from its shape"),
        "down.weight": ("S(1)@tp", "from its shape"),
        "down.bias": ("R", "from its shape"),
        "x": ("R", "by default"),
        "output": ("R", "from its shape"),
    }
    assert found.question is not None
    grads = {o.path for o in found.question.sequential.outputs if o.role == "grad"}
    assert grads == {p for p in placed if p not in ("x", "output")} | {"input:x"}


def test_four_ranks(case):
    case(Mesh.of(tp=4)).proved()


COLUMNS = """
h = Copy.apply(self.norm(x), self.group)
h = F.relu(self.up(h))
"""
WRONG = {
    "no all_reduce": """
y = F.linear(h, self.down.weight)
return x + y + self.down.bias  # here
""",
    "all_reduce twice": """
y = Reduce.apply(F.linear(h, self.down.weight), self.group)
dist.all_reduce(y, group=self.group)  # here
return x + y + self.down.bias
""",
    "averaged, not added up": """
y = F.linear(h, self.down.weight)
dist.all_reduce(y, op=dist.ReduceOp.AVG, group=self.group)  # here
return x + y + self.down.bias
""",
    "bias on every rank": """
y = F.linear(h, self.down.weight, self.down.bias)  # here
return x + Reduce.apply(y, self.group)
""",
    "residual before the reduce": """
y = x + F.linear(h, self.down.weight)  # here
return Reduce.apply(y, self.group) + self.down.bias
""",
    "relu before the reduce": """
y = F.relu(F.linear(h, self.down.weight))  # here
return x + Reduce.apply(y, self.group) + self.down.bias
""",
    "gathered, not added up": """
y = F.linear(h, self.down.weight)
parts = [torch.empty_like(y) for _ in range(2)]
dist.all_gather(parts, y, group=self.group)  # here
return x + parts[0] + self.down.bias
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_forward(case, name):
    case().forward(COLUMNS.strip() + WRONG[name]).refuted_here()


RIGHT = {
    "all_reduce in place": """
y = F.linear(h, self.down.weight)
dist.all_reduce(y, group=self.group)
return x + y + self.down.bias
""",
    "asynchronous, waited for": """
y = F.linear(h, self.down.weight)
work = dist.all_reduce(y, group=self.group, async_op=True)
z = x + self.down.bias
work.wait()
return z + y
""",
    "functional": """
import torch.distributed._functional_collectives as funcol
y = Whole.apply(F.linear(h, self.down.weight), self.group)
return x + y + self.down.bias
""",
    "average times ranks": """
y = F.linear(h, self.down.weight)
dist.all_reduce(y, op=dist.ReduceOp.AVG, group=self.group)
y = Double.apply(y)
return x + y + self.down.bias
""",
    "a share of the bias each": """
y = F.linear(h, self.down.weight, Copy.apply(self.down.bias / 2, self.group))
return x + Reduce.apply(y, self.group)
""",
    "parts of a list": """
y = F.linear(h, self.down.weight)
mine = torch.empty_like(y[:2])
dist.reduce_scatter(mine, list(y.chunk(2)), group=self.group)
y = Joined.apply(y, mine, self.group)
return x + y + self.down.bias
""",
}
MORE = """
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        import torch.distributed._functional_collectives as funcol
        return funcol.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, mine, group):
        out = torch.empty_like(y)
        dist.all_gather_into_tensor(out, mine, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None
"""


@pytest.mark.parametrize("name", RIGHT)
def test_right_forward(case, name):
    asked = case().forward(COLUMNS.strip() + RIGHT[name])
    path = asked.folder / "wrong.py"
    path.write_text(path.read_text() + MORE)
    asked.proved()


COPIED = """
class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return x

    @staticmethod
    def backward(ctx, grad):
        return {grad}, None  # here


class Wrong(ParallelMLP):
    def forward(self, x):
        h = Through.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = Reduce.apply(F.linear(h, self.down.weight), self.group)
        return x + y + self.down.bias
"""


@pytest.mark.parametrize("grad", ["grad", "2 * grad", "torch.zeros_like(grad)"])
def test_a_backward_that_does_not_reduce(case, grad):
    found = case().write(COPIED.format(grad=grad)).refuted()
    assert "grad:norm.weight" in found.verdict.wrong_outputs
    assert not any(o.startswith("output") for o in found.verdict.wrong_outputs)


def test_without_gradients_only_the_forward_is_checked(case):
    case(gradients=False).write(COPIED.format(grad="grad")).proved()
