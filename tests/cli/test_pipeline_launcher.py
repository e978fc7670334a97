"""Launchers whose ranks are stages of a pipeline: proved and run; wrong edits of them refuted."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from shardproof.agent.run import events
from tests.commands import COMMAND, Command, Done, environment

pytestmark = [pytest.mark.torch, pytest.mark.gloo]

MODEL = """import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    tied = True

    def __init__(self, width=4, words=6, layers=3):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.places = nn.Embedding(5, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        if self.tied:
            self.head.weight = self.table.weight

    def through(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, words, target):
        x = self.table(words) + self.places(torch.arange(words.shape[1]))
        x = self.head(self.norm(self.through(x)))
        return F.cross_entropy(x.flatten(0, 1), target.flatten())


class Untied(Net):
    tied = False


class Shared(Untied):
    def __init__(self):
        super().__init__()
        self.blocks[2].up.weight = self.blocks[0].up.weight


class Again(Untied):
    def through(self, x):
        return super().through(x) + x


class Beside(Net):
    def through(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))


class Scores(Net):
    def forward(self, words, target):
        return self.head(self.norm(self.through(self.table(words) + self.places(words % 5))))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(6, 8), nn.Linear(8, 6)

    def forward(self, words, target):
        return F.cross_entropy(self.head(self.table(words)).flatten(0, 1), target.flatten())
"""
INPUTS = ("--input", "words=i64[8,5]<6", "--input", "target=i64[8,5]<6")
WORDS = (*INPUTS, "--launcher", "--micro-batches", "2", "--out", "out")


def _do(folder: Path, *words: str, **extra: str) -> Done:
    done = subprocess.run(
        (*COMMAND, *words), cwd=folder, env=environment(**extra), capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _told(done: Done) -> events.LauncherJudged:
    parsed = [events.parse(line) for line in done.out.splitlines()]
    (found,) = [e for e in parsed if isinstance(e, events.LauncherJudged)]
    return found


def _made(folder: Path, mesh: str, *words: str) -> Done:
    """What `parallelize` says of the model in a folder; the patch is applied."""
    done = _do(folder, "parallelize", *words, "--mesh", mesh, "--json")
    assert done.code == 0, done.out + done.err
    assert _do(folder, "apply", "out", "--yes", "--no-recapture").code == 0
    return done


def _agrees(done: Done, ranks: int, within: float = 1e-9) -> None:
    told = _told(done)
    assert told.verdict == "proved", told.message
    assert f"steps and checkpoints run on {ranks} processes, agrees" in told.standing
    ran = [e for e in map(events.parse, done.out.splitlines()) if isinstance(e, events.Executed)]
    assert len(ran) == 2
    assert all(e.agrees and e.largest_relative_difference < within for e in ran)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "net.py").write_text(MODEL)
    return folder, _made(folder, "pp=2,dp=2", "net.py:Net", *WORDS)


@pytest.mark.slow
@pytest.mark.campaign
def test_stages_of_other_sizes_are_proved_and_run(made: tuple[Path, Done]) -> None:
    folder, done = made
    _agrees(done, 4)
    text = (folder / "out" / "train_parallel.py").read_text()
    assert '("table", "places", "blocks.0", "blocks.1", "head"),' in text
    assert _do(folder, "verify", "out").code == 0


@pytest.mark.slow
@pytest.mark.campaign
def test_a_tied_weight_of_three_stages_is_proved_and_run(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    words = (*INPUTS, "--launcher", "--micro-batches", "8", "--out", "out")
    _agrees(_made(tmp_path, "pp=3", "net.py:Net", *words), 3)


@pytest.mark.slow
@pytest.mark.campaign
def test_stages_that_a_number_of_devices_chooses_are_proved_and_run(tmp_path: Path) -> None:
    _shrunk(tmp_path)
    asked = ("gpt.py:GPT", "--gpus", "2", "--global-batch", "4", "--fix", "pp=2,micro_batch=1")
    done = _do(tmp_path, "parallelize", *asked, "--launcher", "--out", "out", "--json")
    assert done.code == 0, done.out + done.err
    _agrees(done, 2)
    text = (tmp_path / "out" / "train_parallel.py").read_text()
    assert "MICRO_BATCHES = 4" in text
    assert 'MESH = {"pp": 2, "tp": 1}' in text


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("mesh", "ranks"),
    [("pp=2", 2), ("pp=2,tp=2", 4), ("pp=2,dp=2,tp=2", 8)],
    ids=["alone", "with tp", "with dp and tp"],
)
def test_layers_of_nanogpt_are_proved_and_run(mesh: str, ranks: int, tmp_path: Path) -> None:
    _shrunk(tmp_path)
    _agrees(_made(tmp_path, mesh, "gpt.py:GPT", *WORDS[4:]), ranks)


def _shrunk(folder: Path) -> None:
    """A nanoGPT of two layers as gpt.py."""
    text = (Path(__file__).parents[2] / "examples" / "nanogpt.py").read_text()
    sizes = {"block_size: int = 64": 8, "vocab_size: int = 256": 32, "n_embd: int = 64": 16}
    for old, new in ({**sizes, "n_layer: int = 4": 2, "seq: int = 32": 8}).items():
        text = text.replace(old, f"{old.rpartition('=')[0]}= {new}")
    (folder / "gpt.py").write_text(text)


@pytest.mark.slow
@pytest.mark.campaign
def test_layers_of_llama_are_proved_and_run(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32, "vocab_size": 32}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = [word for name, size in sizes.items() for word in ("--config", f"{name}={size}")]
    words = ("hf:LlamaForCausalLM", *config, "--batch", "8", "--seq", "8", *WORDS[4:])
    _agrees(_made(tmp_path, "pp=2,dp=2", *words), 4, within=1e-5)  # norms are in float32


STAGES = """    ("table", "places", "blocks.0", "blocks.1", "head"),
    ("blocks.2", "norm", "head", "table"),
"""
TIED = "        add_over_ends(p.grad.to_local(), pp)\n"
SQUARE = "    dist.all_reduce(square, group=pp.get_group())\n"
SHARDED = 'parallelize(stage.keep(make_model()), mesh["dp"])'
WRONG = {
    "a block left out": (STAGES, STAGES.replace('"blocks.1", ', "")),
    "a block on both stages": (STAGES, STAGES.replace('("blocks.2"', '("blocks.1", "blocks.2"')),
    "blocks of the other stage": (
        STAGES,
        STAGES.replace("blocks.0", "blocks.9").replace("blocks.2", "blocks.0").replace("9", "2"),
    ),
    "the last norm left out": (STAGES, STAGES.replace('"norm", ', "")),
    "losses added up": ("lambda loss, target: loss)", "lambda loss, _: loss, scale_grads=False)"),
    "losses divided twice": ("target: loss)", "target: loss / MICRO_BATCHES)"),
    "targets of the other micro-batch": (
        "target_=target,",
        "target_=torch.cat(target.chunk(MICRO_BATCHES)[::-1]),",
    ),
    "loss of the last micro-batch": ("torch.stack(losses).mean()", "losses[-1]"),
    "gradients of a rank": (SHARDED, 'whole(stage.keep(make_model()), mesh["dp"])'),
    "the same rows on all ranks": ("[dp.get_local_rank()]", "[0]"),
    "rows by the other mesh dim": ("[dp.get_local_rank()]", "[pp.get_local_rank()]"),
    "columns of the batch": ("x.chunk(dp.size())", "x[:, 1:].chunk(dp.size(), 1)"),
    "norm of a stage": (SQUARE, ""),
    "tied gradients stay apart": (TIED, "        pass\n"),
    "tied gradients added twice": (TIED, TIED * 2),
    "tied gradients of the other end": ("grad += theirs", "grad.copy_(theirs)"),
    "a tied weight counts twice": ("if last or name not in TIED", "if True"),
    "a tied weight does not count": ("if last or name not in TIED", "if name not in TIED"),
    "not clipped": ("held.values(), CLIP, norm)", "held.values(), 1e9, norm)"),
    "another rate by stage": ("make_optimizer(model), mesh", "slower(model, stage), mesh"),
}


def _edited(made: tuple[Path, Done], old: str, new: str) -> Done:
    """What `check` says of a launcher after an edit, without a run."""
    folder, done = made
    script = folder / "out" / "train_parallel.py"
    right = script.read_text()
    assert right.count(old) == 1
    more = """def whole(model, mesh):
    from shardproof.runtime import replicate_rest

    replicate_rest(model, mesh)
    return model


def slower(model, stage):
    optimizer = make_optimizer(model)
    optimizer.param_groups[0]["lr"] *= 1 + stage.index
    return optimizer


def parallel("""
    try:
        script.write_text(right.replace(old, new).replace("def parallel(", more))
        path = f"{folder}:{environment()['PYTHONPATH']}"
        words = shlex.split(_told(done).check)[2:]
        return _do(folder, *words, "--no-run", "--repair-seconds", "0", "--json", PYTHONPATH=path)
    finally:
        script.write_text(right)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", WRONG)
def test_wrong_edit_is_refuted_without_a_run(made: tuple[Path, Done], name: str) -> None:
    found = _edited(made, *WRONG[name])
    assert found.last["verdict"] == "refuted", found.out[-2000:]


@pytest.mark.slow
@pytest.mark.campaign
def test_stages_in_another_order_cannot_run(made: tuple[Path, Done]) -> None:
    found = _edited(made, "Stage(STAGES, pp", "Stage(STAGES[::-1], pp")
    assert found.code == 2
    assert "net.py:" in found.out


@pytest.mark.slow
@pytest.mark.campaign
def test_what_crosses_a_cut_beside_the_activation_leaves_no_launcher(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    done = _do(tmp_path, "parallelize", "net.py:Again", "--mesh", "pp=2", *WORDS, "--json")
    assert done.code == 1
    assert _told(done).verdict == "refuted"
    assert not (tmp_path / "out" / "train_parallel.py").exists()


@pytest.mark.parametrize(
    ("mesh", "words", "says"),
    [
        ("pp=2,dp=2", (), "add --launcher"),
        ("pp=2,cp=2", ("--launcher",), "does not split the sequence over cp"),
    ],
    ids=["launcher", "cp"],
)
def test_a_mesh_that_is_not_written_is_one_error(
    mesh: str, words: tuple[str, ...], says: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    done = command("parallelize", "net.py:Net", *INPUTS, "--mesh", mesh, *words, cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "shardproof-out").exists()


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize(
    ("model", "mesh", "words", "says"),
    [
        ("Net", "pp=4", ("--launcher", "--micro-batches", "4"), "3 blocks, fewer than 4 stages"),
        ("Net", "pp=2,dp=2", ("--launcher", "--micro-batches", "3"), "give --batch 12"),
        ("Net", "pp=2,dp=2", ("--launcher",), "2 stages need as many micro-batches"),
        (
            "Shared",
            "pp=2",
            WORDS[4:-2],
            "blocks.0.up.weight and blocks.2.up.weight are one parameter, of stages 0 and 1",
        ),
        ("Beside", "pp=2", WORDS[4:-2], "blocks.1 is not given, first, what the block before"),
        ("Scaled", "pp=2", WORDS[4:-2], "scale is a parameter of no stage's module"),
        ("Scores", "pp=2", WORDS[4:-2], "returns no loss to train with"),
        ("Flat", "pp=2", WORDS[4:-2], "one list of blocks of one class; the model has none"),
    ],
    ids=["blocks", "batch", "micro", "tied", "beside", "own", "loss", "no blocks"],
)
def test_what_cannot_be_cut_is_one_error(
    model: str, mesh: str, words: tuple[str, ...], says: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    named = ("parallelize", f"net.py:{model}", *INPUTS)
    done = command(*named, "--mesh", mesh, *words, "--out", "out", cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()
