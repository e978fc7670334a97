"""What tracing cannot follow is refused, with one message and the user's line."""

from __future__ import annotations

import pytest

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Trace

pytestmark = pytest.mark.torch

BODY = """
h = Copy.apply(self.norm(x), self.group)
h = F.relu(self.up(h))
y = F.linear(h, self.down.weight)
{}
return x + y + self.down.bias
"""
REFUSED = {
    "read in flight": (
        "w = dist.all_reduce(y, group=self.group, async_op=True)\nz = y + 1  # here\nw.wait()",
        "its result is used while the allreduce of wrong.py",
    ),
    "sent data changed in flight": (
        "out = torch.empty(8, 8)\nq = y.clone()\n"
        "w = dist.all_gather_into_tensor(out, q, group=self.group, async_op=True)\n"
        "q.mul_(2)  # here\nw.wait()",
        "what it sends is changed",
    ),
    "never waited for nor used": (
        "dist.all_reduce(y.clone(), group=self.group, async_op=True)  # here",
        "never waited for",
    ),
    "waited for without its handle": (
        "dist.all_reduce(y, group=self.group, async_op=True)  # here\n"
        "y = torch.ops._c10d_functional.wait_tensor(y)",
        "never waited for",
    ),
    "asked whether it is done": (
        "w = dist.all_reduce(y, group=self.group, async_op=True)\nw.is_completed()  # here",
        "more than wait()",
    ),
    "a product": (
        "dist.all_reduce(y, op=dist.ReduceOp.PRODUCT, group=self.group)  # here",
        "reduces by product",
    ),
    "a message of anybody": ("dist.recv(y)  # here", "recv_any_source is not covered"),
    "a message to itself": ("dist.isend(y, dist.get_rank())  # here", "which is nowhere else"),
    "dropout": (
        "y = F.dropout(y, 0.5, training=True)  # here",
        "the parallel module draws random numbers 1 times, the model 0 times",
    ),
    "noise": ("y = y + torch.randn(4, 8)  # here", "draws random numbers"),
    "a value": ("y = y * float(y.sum())  # here", "data-dependent"),
    "a branch on a value": ("y = y if y.sum() > 0 else -y  # here", "data-dependent"),
    "its argument": ("x += 1", "changes its argument x in place"),
    "its argument, by a collective": (
        "dist.all_reduce(x, group=self.group)",
        "changes its argument x in place",
    ),
    "a parameter": (
        "with torch.no_grad():\n    self.down.bias.mul_(2)",
        "changes the parameter down.bias in place",
    ),
    "memory that nobody wrote": (
        "dist.all_reduce(y, group=self.group)\nz = torch.empty(4, 8)\n"
        "y = y + torch.where(torch.zeros(4, 8) > 1, z, 0)  # here",
        "nothing was written to",
    ),
    "what Python draws": (
        "import random\ny = y * random.random()  # here",
        "decides what it computes",
    ),
    "a table of its own": ("self.table[0] = 1\ny = y + self.table", ""),
    "a parameter of nobody": ("y = y * self.stray[0]", "not a parameter of the module"),
    "pieces of other sizes": (
        "dist.all_to_all_single(torch.empty_like(y), y, [1, 3], [1, 3], group=self.group)  # here",
        "[3, 8] in an all_to_all",
    ),
}
INIT = """
class Wrong(ParallelMLP):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.register_buffer("seen", torch.zeros(()))
        self.table = torch.zeros(8)
        self.stray = [torch.ones(8, requires_grad=True)]

    def forward(self, x):
"""


@pytest.mark.parametrize("name", REFUSED)
def test_forward(case, name):
    line, message = REFUSED[name]
    body = BODY.format(line).strip().splitlines()
    asked = case().write(INIT + "".join(f"        {part}\n" for part in body))
    with pytest.raises(CaptureError) as caught:
        asked.check()
    assert message in caught.value.message
    if "# here" in line:
        assert (caught.value.file, caught.value.line) == (
            "wrong.py",
            asked.line("# here", "wrong.py"),
        ), caught.value


STALE = {
    "never waited for": (
        "dist.all_reduce(y, group=self.group, async_op=True)  # here\ny = y + 0",
        "its result is used while the allreduce of wrong.py",
    ),
    "waited for after it is used": (
        "w = dist.all_reduce(y, group=self.group, async_op=True)  # here\n"
        "z = y + 0\nw.wait()\ny = z",
        "its result is used while",
    ),
    "memory that nobody wrote": (
        "z = torch.empty(4, 8)  # here\nz[:2] = y[:2]\ny = y + z",
        "nothing was written to",
    ),
}


@pytest.mark.parametrize("name", STALE)
def test_what_is_not_there_yet_refutes(case, name):
    """One way in which it may run is wrong."""
    line, message = STALE[name]
    body = BODY.format(line).strip().splitlines()
    asked = case().write(INIT + "".join(f"        {part}\n" for part in body))
    place = asked.refuted().verdict.location
    assert message in place.reason
    assert (place.source.file, place.source.line) == ("wrong.py", asked.line("# here", "wrong.py"))


BUILT = {
    "a collective": ("dist.all_reduce(torch.ones(3))", "while the module is built"),
    "objects": ("dist.broadcast_object_list([1, 2], 0)", "while the module is built"),
    "no module": ("return 3", "gives a int"),
    "a stranger": ("return make(nn.Linear(8, 8))", "has a parameter weight"),
    "an argument": ("", "it needs width"),
}


@pytest.mark.parametrize("name", BUILT)
def test_build(case, name):
    line, message = BUILT[name]
    extra = ", width" if name == "an argument" else ""
    asked = case().write(
        f"def make(m):\n    return m\n\ndef build(mesh{extra}):\n    {line or 'pass'}\n"
        "    return ParallelMLP(mesh)\n",
        "build",
    )
    with pytest.raises(CaptureError, match=message):
        asked.check()


def test_a_group_that_is_no_slice(case):
    text = (
        "class Wrong(ParallelMLP):\n"
        "    def __init__(self, mesh, rank):\n"
        "        super().__init__(mesh)\n"
        "        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]\n"
        "        self.group = groups[rank // 2]\n"
    )
    with pytest.raises(CaptureError, match=r"over the ranks \[0, 1\], which are no slice") as e:
        case(Mesh.of(tp=4)).write(text).check()
    assert (e.value.file, e.value.hint[:26]) == ("regions.py", "its slices are tp [0, 1, 2")


WAITING = {
    "one rank alone": "if dist.get_rank() == 0:\n    dist.all_reduce(y, group=self.group)",
    "unused on one rank": (
        "if dist.get_rank() == 0:\n    dist.all_reduce(y.clone(), group=self.group)"
    ),
    "twice on one rank": (
        "z = y.clone()\ndist.all_reduce(z, group=self.group)\n"
        "if dist.get_rank() == 0:\n    z = y.clone()\n    dist.all_reduce(z, group=self.group)\n"
        "y = z"
    ),
}


@pytest.mark.parametrize("name", WAITING)
def test_ranks_that_wait_for_ever(case, name):
    found = case().forward(BODY.format(WAITING[name])).check().verdict
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Trace)
    assert found.witness.check == "communication of ranks"
    assert found.location is not None
    assert found.location.source.file in ("wrong.py", "regions.py"), found


LAYOUTS = {
    "no such parameter": ({"layouts": ["head=S(0)@tp"]}, "there is no parameter head"),
    "no such dim": ({"layouts": ["up.weight=S(0)@pp"]}, "dim of the mesh .tp=2."),
    "another shape": ({"layouts": ["up.weight=S(1)@tp"]}, "does not have the shape"),
    "not clear": ({"mesh": Mesh.of(dp=2, tp=2)}, "is not clear"),
    "no split": ({"layouts": ["up.weight=S(9)@tp"]}, r"S\(9\) on a tensor of 2 dims"),
    "an input that does not divide": (
        {"input_layouts": ["x=S(0)@tp"], "mesh": Mesh.of(tp=8)},
        "not divisible",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(case, name):
    what, message = LAYOUTS[name]
    with pytest.raises((CaptureError, InputError), match=message):
        case(**what).check()


def test_a_parameter_that_no_rank_has_refutes_only_what_is_wrong(case):
    """One that nothing depends on may have another name there."""
    wide = "self.up = nn.Linear(hidden, wide)"
    spare = f"{wide}\n        self.spare = nn.Parameter(torch.zeros(8))"
    asked = case().edit(wide, spare, "model.py")
    with pytest.raises(InputError, match="a parameter spare, which no rank has"):
        asked.check()
    read = "self.up(self.norm(x))))"
    found = asked.edit(read, f"{read} + self.spare", "model.py").refuted()
    assert found.verdict.wrong_outputs == ("output:output",)
