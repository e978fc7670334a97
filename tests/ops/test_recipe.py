"""CONTRIBUTING's recipe is followed: an op is one file, and a line of capture where PyTorch has it.

Five ops are added to a copy of the tree; the laws, the refuter, the provers, the checker, repair,
the page of ops and capture are asked about them there. A view and a collective also have a rule of
placement, one of the checker and samples: nothing else knows them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent / "recipe"
FOLDERS = ("agent", "benchmarks", "prompts", "shardproof", "synthesis", "verifier")
OPS = ("mish", "amin", "cumprod", "mirror", "keep_piece")
CAPTURE = """
aten("amin.default")(lambda e, x, dims=(): e.add("amin", x, dims=e.dims(x, list(dims))))
aten("cumprod.default")(lambda e, x, dim: e.add("cumprod", x, dim=e.dim(x, dim)))
"""
"""A line an op; a function of one number needs none."""
COMPOSED = ('"amin.default", ', '@aten("cumprod.default")\n')
"""Capture makes these of other ops, until they are ops of their own."""
RULES = """

def _mirror(step: Step) -> Made:
    need(step.layout == step.first, "the layout changes")
    need(not any(map(bound, step.first.dims)), "a split dim is reversed")
    return step.term()


def _keep_piece(step: Step) -> Made:
    name = step.attrs["mesh_dim"]
    names = (name,) if isinstance(name, str) else name
    sums(step.first)
    need(step.layout.dims == step.first.dims, "the dims change")
    need(not {*names} & {*step.first.sharded}, "a piece of a piece is kept")
    pending(step, step.first.partial, [(n, "sum") for n in names if step.mesh[n] > 1])
    return step.scaled()


_RULES |= {"mirror": _mirror, "keep_piece": _keep_piece}
"""
"""What the checker holds of a view and of a collective."""
SAMPLES = {
    "tensors": """
TENSORS["mirror"] = lambda a, b: iter([Form(((a, b),), ("f32",), fixed({}))])
""",
    "groups": """
GROUPS["keep_piece"] = _collective(dim=(0, 1), cut=(True,))
""",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tree")
    skip = shutil.ignore_patterns("__pycache__", ".venv", "*.pyc")
    for name in (*FOLDERS, "tests/checker", "tests/laws", "tests/ops"):
        shutil.copytree(ROOT / name, out / name, ignore=skip, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", out)
    for name in OPS:
        shutil.copy(HERE / f"{name}.py", out / "verifier" / "ops")
    views = out / "synthesis/frontends/torch/aten/views.py"
    text = views.read_text(encoding="utf-8")
    for composed in COMPOSED:
        assert text.count(composed) == 1
        text = text.replace(composed, "")
    views.write_text(text + CAPTURE, encoding="utf-8")
    shutil.copy(HERE / "placement/added.py", out / "verifier/provers/placement")
    more = {f"tests/laws/samples/{name}.py": lines for name, lines in SAMPLES.items()}
    for path, lines in (("verifier/checker/rules.py", RULES), *more.items()):
        with (out / path).open("a", encoding="utf-8") as file:
            file.write(lines)
    return out


def run(tree: Path, *args: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_the_laws_try_new_ops(tree: Path) -> None:
    run(tree, "tests/laws", "tests/checker/test_rules.py", "-k", " or ".join(OPS))


@pytest.mark.slow
def test_all_else_follows_from_the_declarations(tree: Path) -> None:
    run(tree, "tests/ops/recipe/follows.py")


@pytest.mark.slow
def test_nothing_else_names_new_ops(tree: Path) -> None:
    run(tree, "tests/laws/test_names.py", "tests/laws/test_traits.py", "-k", "named")
