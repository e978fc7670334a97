"""Parallel modules as people write them, traced in this process's children and judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from shardproof.agent.check import judging
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.judging import Checked
from shardproof.synthesis.frontends.torch.ranks.request import TRAIN, RanksRequest
from shardproof.synthesis.frontends.torch.ranks.result import Side, load
from shardproof.synthesis.frontends.torch.ranks.stated import read_lines
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.types import NO_MESH, Mesh
from shardproof.verifier.verdict import Counterexample, Proof

Work = Sequence[tuple[str, Callable[[], Side]]]
Told = list[tuple[list[str], list[str]]]
Trace = Callable[[Path, Work, str], Told]
ONCE: dict[str, tuple[Told, str]] = {}
"""What tracing one device said and wrote, by what was asked."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "check"


@dataclass
class Case:
    """A copy of the examples, with edits, that can be checked."""

    folder: Path
    mesh: Mesh
    target: str = "parallel.py:ParallelMLP"
    against: str = "model.py:MLP"
    inputs: Sequence[str] = ()
    layouts: Sequence[str] = ()
    input_layouts: Sequence[str] = ()
    output_layouts: Sequence[str] = ()
    names: Sequence[tuple[str, str]] = ()
    after_backward: str = ""
    step: str = ""
    gradients: bool = True
    config: dict[str, object] = field(default_factory=dict)
    no_grad: Sequence[str] = ()
    grad_of_input: Sequence[str] = ()
    skip: Sequence[str] = ()
    loss: str = ""
    modes: Sequence[str] = (TRAIN,)
    """Where modes are no matter, one is traced; `test_modes.py` asks for all."""

    def edit(self, old: str, new: str, file: str = "parallel.py") -> Case:
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
        path.write_text(text.replace(old, new))
        return self

    def write(self, text: str, target: str = "Wrong", name: str = "wrong.py") -> Case:
        """Check `target` in a file with this text, below the imports that all of them need."""
        (self.folder / name).write_text(HEAD + text)
        self.target = f"{name}:{target}"
        return self

    def forward(self, body: str, of: str = "ParallelMLP") -> Case:
        """Check a module of the examples with another forward."""
        lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
        return self.write(f"class Wrong({of}):\n    def forward(self, x):\n{lines}")

    def line(self, part: str, file: str) -> int:
        """The number of the only line with this part."""
        lines = (self.folder / file).read_text().splitlines()
        found = [n for n, line in enumerate(lines, 1) if part in line]
        assert len(found) == 1, f"{part!r} is on lines {found}"
        return found[0]

    def check(self) -> Checked:
        """The last that was judged: the first that is not proved."""
        return self.each()[-1]

    def each(self) -> tuple[Checked, ...]:
        """What was judged, mode by mode where they differ."""
        from shardproof.synthesis.frontends.torch.ranks import session

        out = self.folder / "traced"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        stated = Statements(
            read_lines(self.layouts, "--layout"),
            read_lines(self.input_layouts, "--input-layout"),
            read_lines(self.output_layouts, "--output-layout"),
        )
        request = RanksRequest(
            f"{self.folder}/{self.target}",
            f"{self.folder}/{self.against}",
            self.mesh,
            self.config,
            tuple(InputSpec.parse(t) for t in self.inputs),
            gradients=self.gradients and not self.step,
            step=self.step,
            names=tuple(self.names),
            no_grad=tuple(self.no_grad),
            input_layouts=stated.inputs,
            after_backward=self.after_backward,
            modes=tuple(self.modes),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "_all", partial(self.traced, request, session._all))
            session.save_ranks(request.to_json(), out, lambda _: None)
        found = load(out)
        compared = judging.Compared(self.skip, self.grad_of_input, self.loss)
        return judging.check_modes(found, stated, lambda _: None, compared)

    def traced(
        self, request: RanksRequest, trace: Trace, folder: Path, work: Work, root: str
    ) -> Told:
        """What tracing gives; the model of the examples is traced on one device once for all."""
        text = Path(request.against.rpartition(":")[0]).read_text()
        of_examples = text == (EXAMPLES / "model.py").read_text()
        if [name for name, _ in work] != ["one"] or self.modes != (TRAIN,) or not of_examples:
            return trace(folder, work, root)
        given = replace(request, target="", against=self.against, mesh=NO_MESH)
        key = str(given.to_json())
        path = folder / "one.json"
        if key not in ONCE:
            ONCE[key] = trace(folder, work, root), path.read_text()
        told, text = ONCE[key]
        path.write_text(text)
        return told

    def proved(self) -> Checked:
        found = self.check()
        assert isinstance(found.verdict, Proof), found.verdict
        return found

    def refuted(self) -> Checked:
        found = self.check()
        assert isinstance(found.verdict, Counterexample), found.verdict
        return found

    def refuted_here(self, part: str = "# here", file: str = "wrong.py") -> Checked:
        """Refuted, and the verdict points at the only line with this part."""
        found = self.refuted()
        verdict = judging.with_edits(found, judging.edits_for(found, 3))
        assert isinstance(verdict, Counterexample)
        place = verdict.location
        assert place is not None
        shown = f"{place.source} {place.source.text}: {place.text}: {place.reason}"
        assert (place.source.file, place.source.line) == (file, self.line(part, file)), shown
        return found


HEAD = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from parallel import *
from regions import *
from torch import nn
"""


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., Case]:
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, tmp_path)

    def make(mesh: Mesh | None = None, **what: object) -> Case:
        return Case(tmp_path, mesh or Mesh.of(tp=2), **what)

    return make
