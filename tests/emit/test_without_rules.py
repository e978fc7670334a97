"""Which classes of torch.nn DTensor cannot run whole, asked of DTensor itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shardproof.synthesis.emit.parallelize import WITHOUT_RULES

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from shardproof.runtime.placement import Replicated

torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
mesh = init_device_mesh("cpu", (2,))
x = torch.randn(3, 4, 5, requires_grad=True)
tried = {
    nn.Linear(5, 4): x, nn.Embedding(4, 4): torch.zeros(3, dtype=torch.long),
    nn.LayerNorm(5): x, nn.RMSNorm(5): x, nn.GroupNorm(2, 4): x, nn.PReLU(): x, nn.PReLU(4): x,
    nn.Conv1d(4, 4, 1): x, nn.Conv2d(4, 4, 1): x[..., None], nn.ConvTranspose1d(4, 4, 2): x,
    nn.Conv3d(4, 4, 1): x[..., None, None], nn.ConvTranspose2d(4, 4, 2): x[..., None],
    nn.BatchNorm1d(4): x, nn.BatchNorm2d(4): x[..., None],
    nn.InstanceNorm1d(4, affine=True): x,
}
for module, given in tried.items():
    model = parallelize_module(nn.Sequential(module), mesh, {"0": Replicated()})
    try:
        model(given).sum().backward()
    except NotImplementedError as error:
        assert "does not have a sharding strategy" in str(error)
        print(type(module).__name__)
"""


def test_the_table_is_what_dtensor_has_no_rules_for() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) == WITHOUT_RULES
