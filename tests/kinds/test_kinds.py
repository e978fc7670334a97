"""Models of several kinds, as people write them: what becomes of each on a mesh, by the command."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.commands import command as command

pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.campaign]
MODELS = Path(__file__).parent / "models"
MANIFEST = tomllib.loads(MODELS.with_name("kinds.toml").read_text())
INPUTS = {j["target"].removeprefix("models/"): j.get("input", ()) for j in MANIFEST["job"]}
PROVED = (
    ("running.py:BN", "dp=2"),
    ("running.py:BN", "tp=2"),
    ("running.py:EMA", "tp=2"),
    ("encoder.py:Encoder", "dp=2"),
    ("encoder.py:Encoder", "tp=2"),
    ("experts.py:Biased", "tp=2"),
    ("captions.py:Captioner", "tp=2"),
    ("gpt.py:Checkpointed", "dp=2"),
    ("gpt.py:Checkpointed", "tp=2"),
    ("grouped.py:Grouped", "tp=2"),
    ("disentangled.py:DebertaForMaskedLM", "tp=2"),
    ("fused.py:PaLM", "tp=2"),
    ("fused.py:Sliced", "tp=2"),
    ("fused.py:Transformer", "tp=2"),
    ("heads.py:Folded", "tp=2"),
    ("heads.py:GatedSinks", "tp=2"),
    ("heads.py:Masked", "tp=2"),
    ("heads.py:Sinks", "tp=2"),
    ("indexed.py:Sparse", "tp=2"),
    ("own.py:Model", "tp=2"),
    ("own.py:PerHeads", "tp=2"),
    ("pooled.py:Text", "tp=2"),
    ("products.py:Products", "tp=2"),
    ("recommender.py:DLRM", "dp=2"),
    ("language.py:Cells", "tp=2"),
    ("language.py:Perceiver", "tp=2"),
    ("latents.py:Perceiver", "tp=2"),
    ("masked.py:Bert", "tp=2"),
    ("numbered.py:Net", "tp=2"),
    ("relative.py:Encoder", "tp=2"),
    ("translation.py:Translator", "tp=2"),
    ("language.py:Recurrent", "tp=2"),
    ("recommender.py:DLRM", "tp=2"),
    ("pairs.py:Siamese", "dp=2"),
    ("pairs.py:Translator", "dp=2"),
    ("resnet.py:CrossStage", "tp=2"),
    ("resnet.py:ResNet", "dp=2"),
    ("resnet.py:ResNet", "tp=2"),
    ("signals.py:Conformer", "tp=2"),
    ("signals.py:WaveNet", "tp=2"),
    ("tagger.py:Tagger", "dp=2"),
    ("unet.py:UNet", "dp=2"),
    ("unet.py:UNet", "tp=2"),
    ("wrapped.py:Valued", "tp=2"),
)
GATHERED = (("graph.py:Gcn", "tp=2"),)
"""Models of which nothing but columns that are gathered at once can be split."""
LEFT = (
    ("running.py:EMA", "dp=2", 1, "partial sum over dp", "running.py"),
    ("graph.py:Gcn", "dp=2", 1, "samples of it meet here: the loss of all is not", "graph.py"),
    ("pairs.py:TwoTower", "dp=2", 1, "split the model over tp, or gather over dp", "pairs.py"),
)


@pytest.mark.parametrize(("target", "mesh"), PROVED)
def test_proved_run_and_equal(target, mesh, command):
    given = [word for item in INPUTS[target] for word in ("--input", item)]
    words = ("--mesh", mesh, "--run", "--out", "out")
    done = command("parallelize", f"{MODELS}/{target}", *words, *given)
    assert done.code == 0, done.out + done.err
    said = done.out + done.err
    assert "read again and proved | run on 2 processes, agrees" in said
    assert "not useful" not in said


@pytest.mark.parametrize(("target", "mesh"), GATHERED)
def test_a_plan_of_gathered_columns_is_proved_and_not_useful(target, mesh, command):
    done = command("parallelize", f"{MODELS}/{target}", "--mesh", mesh, "--require-useful")
    assert done.code == 5, done.out + done.err
    assert done.out.rstrip().split("\n")[-1].startswith("not useful: shards 0% of")


def test_attention_that_cannot_be_split_takes_nothing_else_down(command):
    target = f"{MODELS}/grouped.py:Counting"
    done = command("parallelize", target, "--mesh", "tp=2", "--require-useful", "--out", "out")
    said = done.out + done.err
    assert done.code == 0, said
    assert "attention stays whole: layers.*.attn" in said
    assert "tp=2: 2 column, 2 row" in said


@pytest.mark.parametrize(("target", "mesh", "code", "why", "where"), LEFT)
def test_what_cannot_be_is_told_with_its_line(target, mesh, code, why, where, command):
    done = command("parallelize", f"{MODELS}/{target}", "--mesh", mesh, "--run", "--out", "out")
    said = done.out + done.err
    assert done.code == code, said
    assert why in said
    assert where in said
    assert "Traceback" not in said
