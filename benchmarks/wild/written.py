"""What a new user writes to parallelize a model of a package."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

from benchmarks.parallelize import ROOT, Job
from benchmarks.wild.listed import Listed
from shardproof.synthesis.frontends.torch.request import InputSpec

TARGETS = ROOT / "bench" / "wild-targets"
LIMIT = 300
"""Seconds that a command may take."""
TARGET = '''"""{name}, small."""

import torch
{imports}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = {made}({arguments})

    def forward(self, {names}):
        return self.net{method}({given}){result}


def example_inputs():
    torch.manual_seed(0)
    return {{{examples}}}
'''


def job(one: Listed, mesh: str, folder: Path = TARGETS, clones: Path | None = None) -> Job:
    """The command for a model; a file that wraps the model and gives it example inputs is written
    into the folder, or into a copy there of its clone."""
    options = ("--mesh", mesh, "--run", "--require-useful", "--timeout", str(LIMIT))
    if ":" in one.made:
        given = [x for item in one.inputs for x in ("--input", item)]
        return Job(one.name, one.made, tuple(_fields(one)), (*options, *given))
    if one.is_clone:
        if clones is not None and (clones / one.package).is_dir():
            shutil.copytree(clones / one.package, folder / one.package, dirs_exist_ok=True)
        folder = folder / one.package
    file = folder / (one.name.translate(str.maketrans("/.-", "___")).lower() + ".py")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(target(one))
    return Job(one.name, f"{file}:Model", (), options)


def target(one: Listed) -> str:
    """The file as Python."""
    specs = [InputSpec.parse(text) for text in one.inputs]
    paths = [one.made, *(ast.unparse(n) for n in ast.walk(_call(one)) if _is_path(n))]
    modules = {_module(p) for p in paths} - {"torch", "torch.nn", "torch.nn.functional"}
    return TARGET.format(
        name=one.name,
        imports="\n".join(f"import {m}" for m in sorted(modules)),
        made=one.made,
        arguments=one.arguments,
        names=", ".join(s.name for s in specs),
        given=", ".join(s.name if len(specs) == 1 else f"{s.name}={s.name}" for s in specs),
        method=one.method,
        result=one.result,
        examples=", ".join(f'"{s.name}": {_example(s)}' for s in specs),
    )


def _call(one: Listed) -> ast.Call:
    call = ast.parse(f"f({one.arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    return call


def _is_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name)


def _module(path: str) -> str:
    """Of a dotted name, the module: what stands before its class, or before the last word."""
    words = path.split(".")
    large = [i for i, word in enumerate(words) if i and word.lstrip("_")[:1].isupper()]
    return ".".join(words[: large[-1] if large else -1])


def _example(spec: InputSpec) -> str:
    if spec.dtype == "i64":
        return f"torch.randint(0, {spec.below}, {spec.shape})"
    return f"torch.randn{spec.shape}"


def _fields(one: Listed) -> list[str]:
    """`--config` of each argument."""
    values = {k.arg: eval(ast.unparse(k.value)) for k in _call(one).keywords}
    return [f"{name}={json.dumps(value)}" for name, value in values.items()]
