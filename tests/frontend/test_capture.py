"""Captured programs compute what PyTorch computes: outputs, loss and every gradient."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shardproof.agent.pipeline.pipeline import kinds
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.verifier.refute.evaluate import evaluate
from tests.frontend.conftest import ROOT, SMALL
from tests.frontend.reference import reference

pytestmark = pytest.mark.torch
hf = pytest.mark.hf
slow = pytest.mark.slow

BERT = {**{k: v for k, v in SMALL.items() if "key_value" not in k}, "max_position_embeddings": 32}
GPT2 = {"n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 64, "n_positions": 16}
GEMMA = {**SMALL, "head_dim": 10}
WHISPER = {
    "d_model": 16,
    "encoder_layers": 8,
    "decoder_layers": 8,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "num_mel_bins": 4,
    "max_source_positions": 6,
    "max_target_positions": 16,
    "vocab_size": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
LIBRARY = {
    "LlamaForCausalLM": SMALL,
    "GPT2LMHeadModel": GPT2,
    "Qwen2ForCausalLM": SMALL,
    "Qwen3ForCausalLM": GEMMA,
    "MistralForCausalLM": {**SMALL, "sliding_window": 4},
    "GemmaForCausalLM": GEMMA,
    "Gemma2ForCausalLM": {**GEMMA, "sliding_window": 4, "num_hidden_layers": 8},
    "BertForMaskedLM": BERT,
    "BertModel": BERT,
    "WhisperForConditionalGeneration": WHISPER,
}
EVERY_RUN = ("LlamaForCausalLM", "GPT2LMHeadModel", "Gemma2ForCausalLM", "BertModel")


def agrees(request, tolerance=1e-9):
    """Capture, evaluate, and compare with PyTorch in float64; returns what was captured."""
    found = capture(request)
    expected = reference(request, seed=3, train=found.facts.train)
    got = evaluate(found.program, expected.values(found))
    want = expected.expected(found)
    assert set(want) == {o.value for o in found.program.outputs}
    for name, value in want.items():
        assert got[name].shape == value.shape
        assert np.abs(got[name] - value).max() <= tolerance * max(1.0, np.abs(value).max())
    grads = [o for o in found.program.outputs if o.role == "grad"]
    params = [i for i in found.program.inputs if i.role == "param"]
    assert len(grads) == len(params) - len(found.facts.unused) - len(found.facts.frozen)
    return found


@hf
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in EVERY_RUN else [pytest.mark.campaign]) for n in LIBRARY],
)
def test_library_models_agree_with_pytorch(name):
    request = CaptureRequest(f"hf:{name}", LIBRARY[name], batch=2, seq=8, dtype="f64")
    found = agrees(request)
    assert {g.traced * g.period < g.total for g in found.facts.groups} == {True}
    assert all(n.source.file for _, n in found.program.walk() if n.op in ("mm", "bmm", "take"))


@hf
@slow
def test_fused_attention_agrees_with_pytorch():
    agrees(
        CaptureRequest("hf:LlamaForCausalLM", SMALL, batch=2, seq=8, dtype="f64", attention="sdpa")
    )


@pytest.mark.parametrize("target", ["nanogpt.py:GPT", "minillama.py:Llama"])
def test_user_files_agree_with_pytorch(target):
    path = f"{ROOT}/examples/{target}"
    found = agrees(CaptureRequest(path, batch=2, seq=8, dtype="f64"))
    assert len(found.facts.groups) == 1
    (file,) = found.facts.files
    assert file.path == target.split(":")[0]
    lines = file.text.splitlines()
    for _, node in found.program.walk():
        if node.source.line and node.source.file == file.path:
            assert lines[node.source.line - 1].strip() == node.source.text


def test_a_classifier_agrees_with_pytorch_and_has_no_repeated_block():
    found = agrees(CaptureRequest(f"{ROOT}/examples/mlp.py:MLP", {"hidden": 12}, dtype="f64"))
    assert found.facts.groups == ()
    assert found.facts.params["up.weight"].shape == (12, 16)


def test_tied_parameters_are_one_parameter_with_one_gradient():
    found = capture(CaptureRequest(f"{ROOT}/examples/nanogpt.py:GPT", batch=1, seq=4))
    assert found.facts.tied == (("wte.weight", "lm_head.weight"),)
    assert [o.path for o in found.program.outputs if "weight" in o.path].count("wte.weight") == 1
    assert "lm_head.weight" not in found.program.types


def test_without_a_loss_there_is_a_cotangent_for_each_output(user_model):
    target = user_model("y = self.w(x)\nreturn y, y * 2")
    found = agrees(CaptureRequest(target, dtype="f64"))
    assert [i.role for i in found.program.inputs].count("cotangent") == 2


@pytest.mark.parametrize("dims", ["-1", "(0, 1)"])
def test_logsumexp_agrees_with_pytorch(user_model, dims):
    agrees(CaptureRequest(user_model(f"return self.w(x).logsumexp({dims}).sum()"), dtype="f64"))


@pytest.mark.parametrize(
    "code",
    [
        "roll(1, 0)",
        "roll((-1, 2), (0, 1))",
        "roll(5)",
        "tril()",
        "tril(-1)",
        "triu(1)",
        "unsqueeze(0).expand(2, -1, -1).triu()",
    ],
)
def test_rolled_and_triangular_tensors_agree_with_pytorch(user_model, code):
    agrees(CaptureRequest(user_model(f"return self.w(x).{code}.square().sum()"), dtype="f64"))


def test_a_rolled_tensor_is_made_of_its_pieces(user_model):
    found = capture(CaptureRequest(user_model("return self.w(x).roll(1, 0)")))
    assert {"slice", "concat"} <= {node.op for node in found.program.nodes}
    assert not [i for i in found.program.inputs if i.role == "const"]


def test_a_constant_that_is_read_by_strides_agrees_with_pytorch(user_model):
    mask = "torch.ones(4, 4).expand(4, 4).clone()"
    code = f"m = {mask}\nm[1:3, 0] = 2.0\nreturn (self.w(x) * m.as_strided((4,), (5,))).sum()"
    agrees(CaptureRequest(user_model(code), dtype="f64"))


def test_strides_of_a_constant_view_count_from_the_start_of_its_memory(user_model):
    made = "torch.arange(8.0).mul(1.5)[2:]"
    for where in ("", ", 3"):
        code = f"return (self.w(x) * {made}.as_strided((4,), (1,){where})).sum()"
        agrees(CaptureRequest(user_model(code), dtype="f64"))
    code = f"return (self.w(x) * {made}.as_strided((4,), (1,), 1)).sum()"
    with pytest.raises(CaptureError, match="beyond the tensor"):
        capture(CaptureRequest(user_model(code), dtype="f64"))


def test_forward_only_has_no_gradients(user_model):
    found = capture(CaptureRequest(user_model("return self.w(x)"), gradients=False))
    assert [o.role for o in found.program.outputs] == ["output"]
    assert [i.role for i in found.program.inputs] == ["param", "param", "input"]


def test_inputs_can_be_given_as_text(user_model):
    spec = InputSpec.parse("x=f32[6, 4]")
    found = capture(CaptureRequest(user_model("return self.w(x)"), inputs=(spec,)))
    assert found.program["x"].shape == (6, 4)


def test_unused_parameters_are_a_notice_not_an_error(user_model):
    target = user_model("return self.w(x).sum()")
    path = Path(target[:-2])
    more = "nn.Linear(4, 4)\n        self.spare = nn.Linear(2, 2)"
    path.write_text(path.read_text().replace("nn.Linear(4, 4)", more))
    found = capture(CaptureRequest(target))
    assert found.facts.unused == ("spare.weight", "spare.bias")
    assert any("spare.weight" in a for a in found.assumptions)


@hf
def test_llama_405b_is_captured_with_little_memory_and_few_layers():
    config = {
        "hidden_size": 16384,
        "intermediate_size": 53248,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    found = capture(CaptureRequest("hf:LlamaForCausalLM", config, batch=1, seq=8192))
    (group,) = found.facts.groups
    assert (group.traced, group.count, group.total) == (3, 126, 126)
    assert found.program["model.layers.*.mlp.up_proj.weight"].shape == (126, 53248, 16384)
    assert found.facts.param_count == 405_853_388_800
    assert found.peak_bytes < 4 << 30
    assert any("3 of the 126 layers" in a for a in found.assumptions)


@hf
def test_alternating_layers_of_experts_are_captured_with_little_memory_and_few_layers():
    """gpt-oss-120b: its stacks of experts are larger than most machines."""
    config = {"num_hidden_layers": 36, "num_local_experts": 128}
    found = capture(CaptureRequest("hf:GptOssForCausalLM", config, batch=1, seq=1024))
    (group,) = found.facts.groups
    assert group.patterns == ("model.layers.[0:36:2]", "model.layers.[1:36:2]")
    assert (group.traced, group.count) == (3, 18)
    experts = found.program["model.layers.[0:36:2].mlp.experts.gate_up_proj"]
    assert experts.shape == (18, 128, 2880, 5760)
    assert found.peak_bytes < 4 << 30


def test_a_buffer_too_large_to_be_made_is_named(user_model):
    made = user_model("return self.w(x) + self.big[0, 0]").rpartition(":")[0]
    path = Path(made)
    more = 'nn.Linear(4, 4)\n        self.register_buffer("big", torch.zeros(1 << 14, 1 << 14))'
    path.write_text(path.read_text().replace("nn.Linear(4, 4)", more))
    with pytest.raises(CaptureError, match="values of buffer big are not known"):
        capture(CaptureRequest(f"{path}:M"))


def test_a_class_made_of_a_linear_counts_as_one(user_model):
    made = user_model("return self.w(x)", top="class Quantized(nn.Linear):\n    pass")
    path = Path(made.rpartition(":")[0])
    path.write_text(path.read_text().replace("self.w = nn.Linear", "self.w = Quantized"))
    found = capture(CaptureRequest(made))
    assert (found.facts.modules["w"].kind, kinds(found)["w"]) == ("Quantized", "Linear")


def test_a_class_made_of_a_table_counts_as_itself(user_model):
    """It may look up other rows than it is given."""
    forward = "def forward(self, i):\n        return super().forward(i + 2)"
    top = f"class Offset(nn.Embedding):\n    {forward}"
    made = user_model("return self.w(x) + self.t(x.long().clamp(0, 1)).sum()", top=top)
    path = Path(made.rpartition(":")[0])
    text = path.read_text()
    line = next(each for each in text.splitlines() if "self.w = nn.Linear" in each)
    path.write_text(text.replace(line, f"{line}\n        self.t = Offset(8, 2)"))
    assert kinds(capture(CaptureRequest(made)))["t"] == "Offset"


def test_numbers_of_layers_in_a_config_are_no_kinds():
    from torch import nn

    from shardproof.synthesis.frontends.torch import depth as depths
    from shardproof.synthesis.frontends.torch.rolling.depth import choose

    config = SimpleNamespace(
        moe_layers=list(range(48)), layer_types=["a", "b"] * 24, encoder_layers=6, decoder_layers=48
    )
    model = nn.Module()
    model.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(48))
    found = choose(depths.layer_kinds(model, 48, config))
    assert (found.period, found.layers) == (2, 6)
    assert depths.shorter_config(config, found) == {
        "num_hidden_layers": 6,
        "decoder_layers": 6,
        "moe_layers": list(range(6)),
        "layer_types": ["a", "b"] * 3,
    }


def test_the_front_end_is_imported_without_torch():
    code = (
        "import sys, shardproof.verifier, shardproof.synthesis.frontends.torch\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@hf
def test_a_backward_that_the_library_wrote_by_hand_is_captured_as_it_runs():
    config = {"hidden_size": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32}
    found = agrees(CaptureRequest("hf:BloomForCausalLM", config, batch=2, seq=4))
    assert any(o.role == "grad" and "dense_h_to_4h" in o.path for o in found.program.outputs)


def test_a_parameter_that_no_gradient_reaches_is_named(user_model):
    forward = "g = self.w(x).detach() * 2\nreturn x * self.w.bias.square() + g"
    found = capture(CaptureRequest(user_model(forward)))
    assert found.facts.untrained == ("w.weight",)
    assert any("Read, but reached by no gradient: w.weight" in a for a in found.assumptions)


def test_code_that_asks_whether_it_is_exported_is_captured_as_it_runs(user_model):
    target = user_model(
        "h = self.w(x)\n"
        "return h.exp() if torch.compiler.is_exporting() or torch.compiler.is_compiling() else h"
    )
    found = agrees(CaptureRequest(target))
    assert "exp" not in {n.op for n in found.program.nodes}


def test_joining_with_an_empty_line_leaves_it_out(user_model):
    agrees(CaptureRequest(user_model("return torch.cat([torch.tensor([]), self.w(x)], -2)")))


def test_joining_integers_with_reals_makes_reals_of_them(user_model):
    body = "return torch.cat([self.w(x), torch.ones(x.shape[0], 1, dtype=torch.long)], -1)"
    agrees(CaptureRequest(user_model(body)))


@pytest.mark.parametrize(
    "lines",
    ["torch.arange(2)", "torch.arange(2).flip(0)", "torch.arange(1)", "torch.zeros(2).long()"],
)
def test_indices_that_count_through_dims_agree_with_pytorch(user_model, lines):
    body = (
        f"a, b = {lines}[:, None, None], torch.arange(2).view(1, 2, 1)\n"
        "y = self.w(x).reshape(2, 2, -1)\n"
        "return y[a, b, torch.tensor([1, 0, 1])] + y[:, torch.arange(2)[:, None], [1, 1, 0]]"
    )
    agrees(CaptureRequest(user_model(body)))


def test_heads_that_share_keys_and_values(user_model):
    forward = (
        "q = self.w(x).view(2, 4, 1, 1).expand(2, 4, 3, 2)\n"
        "k = self.w(x).view(2, 2, 1, 2).expand(2, 2, 3, 2)\n"
        "attend = nn.functional.scaled_dot_product_attention\n"
        "return attend(q, k, k, is_causal=True, enable_gqa=True)"
    )
    agrees(CaptureRequest(user_model(forward)))


def test_a_module_that_is_converted_to_what_it_is_stays(user_model):
    import torch

    from shardproof.synthesis.frontends.torch.torch_api import _converted

    lines = "self.w = self.w.to(x.dtype)\nreturn self.w(x)"
    found = capture(CaptureRequest(user_model(lines))).program
    usual = capture(CaptureRequest(user_model("return self.w(x)", name="usual.py"))).program
    assert [n.op for n in found.nodes] == [n.op for n in usual.nodes]
    other = _converted(torch.nn.Linear(2, 2), torch.float64)
    assert other.weight.dtype == torch.float64
    with pytest.raises(TypeError, match="only accepts floating point"):
        _converted(torch.nn.Linear(2, 2), torch.int64)


NAMED = """import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)

    def forward(self, x):
        return self.q(x).view(2, 2, 2).sin()


class Block(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.attn = nn.ModuleList(Attention() for _ in range(count))

    def forward(self, x):
        for attn in self.attn:
            x = attn.forward(x).reshape(2, 4)
        return x


class One(nn.Module):
    def __init__(self, count=1):
        super().__init__()
        self.block = Block(count)

    def forward(self, x):
        return self.block(x)


class Two(One):
    def __init__(self):
        super().__init__(2)


def example_inputs():
    return {"x": torch.randn(2, 4)}
"""


@pytest.mark.parametrize(("name", "module"), [("One", "block.attn.0"), ("Two", "block")])
def test_a_forward_that_is_called_by_name_is_its_module_s(tmp_path, name, module):
    """No hook tells of the call; a module is known by its methods where no other has them."""
    path = tmp_path / "named.py"
    path.write_text(NAMED)
    program = capture(CaptureRequest(f"{path}:{name}")).program
    assert {n.source.module for _, n in program.walk() if n.op == "sin"} == {module}
