"""Runs a model on one device and its parallel form on every rank, and compares them.

The processes run the owner's code as it stands (`rank.py`). What they hold of which tensor is
decided here, once, from what they say of themselves.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from synthesis.execute.run.launcher import LaunchError, launcher
from verifier.kernel.program.types import Mesh

SEEDS = (0, 1, 2)
CALLS = 2
ALIKE = 1e-9
"""The largest relative difference of two runs in float64 that are alike."""
NUDGE = 2.0**-23
"""By how much values are changed to see what rounding in float32 does to them."""
ROUNDED = 30.0
"""How many times that a difference may be."""
LARGE = 2_000_000
"""Parameters beyond which one seed is run instead of all."""
PATIENCE_S = 30.0
"""Seconds that a rank waits for others in a collective."""
SECONDS = 240.0
"""Of one run of all processes in one mode."""


@dataclass(frozen=True)
class Side:
    """What a process builds: a class or a function of a file, or a class of transformers."""

    kind: str
    """`file` or `hf`."""
    name: str
    file: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of a config, or arguments."""
    paths: tuple[str, ...] = ()
    """Folders that its imports are looked up in, beside that of the file."""
    model: "Side | None" = None
    """What is built first, and given as the argument `model`."""
    plan: str | Mapping[str, str] | None = None
    """Of a class of transformers, on a rank."""


@dataclass(frozen=True)
class Order:
    """What is run."""

    one: Side
    many: Side
    mesh: Mesh
    inputs: tuple[Mapping[str, Any], ...] | None = None
    """`name`, `shape`, `dtype`, `below`; None: `example_inputs()` of the model's file."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Arguments of `example_inputs`."""
    gradients: bool = True
    no_grad: tuple[str, ...] = ()
    grads_of: tuple[str, ...] = ()
    """Inputs whose gradients are compared although the model returns its loss."""
    after_backward: str = ""
    share: float = 1.0
    """What cotangents of the ranks' outputs are multiplied by."""
    placed_by_code: bool = False
    """Whether the function that is given the loaded model places all of its values."""
    alone: bool = False
    """Whether the model is the parallel module itself, on one rank."""
    modes: tuple[str, ...] = ("train", "eval")
    most: int = 0
    """Parameters beyond which the model is not built; 0: any number."""
    seeds: tuple[int, ...] = SEEDS
    calls: int = CALLS
    seconds: float = SECONDS


@dataclass(frozen=True)
class Mode:
    """One run of all processes."""

    train: bool
    gradients: bool
    without_dropout: bool = False
    varied: str = ""
    """The generator that is seeded by rank: `random`, `numpy.random` or `torch`."""
    nudge: float = 0.0
    alone: bool = False
    """Whether one device runs alone."""

    def __str__(self) -> str:
        words = f"{'train' if self.train else 'eval'} mode"
        words += "" if self.gradients else " under torch.no_grad()"
        words += ", dropout left out" if self.without_dropout else ""
        return words + (f", `{self.varied}` seeded by rank" if self.varied else "")


@dataclass(frozen=True)
class Row:
    """One tensor of one call on one rank, compared."""

    kind: str
    name: str
    rank: int
    relative: float
    mode: str
    seed: int
    call: int
    absolute: float = 0.0
    at: tuple[int, ...] = ()
    """Which entry of the rank's piece differs most."""
    got: float = 0.0
    want: float = 0.0
    said: str = ""
    """Of other shapes."""
    finite: bool = True


@dataclass(frozen=True)
class Failed:
    """What ended a process."""

    process: int
    """0 is one device, N + 1 the rank N."""
    kind: str
    message: str
    stage: str
    """`build`, `run` or `stuck`."""
    mode: str
    file: str = ""
    line: int = 0
    text: str = ""

    @property
    def who(self) -> str:
        return f"rank {self.process - 1}" if self.process else "one device"


@dataclass(frozen=True)
class Ran:
    """What came of a run."""

    rows: tuple[Row, ...] = ()
    failed: Failed | None = None
    unlike: str = ""
    """Why the tensors of the ranks could not be told: what the model has and they lack, say."""
    seeds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Generators that must be seeded alike on all ranks, with the lines that draw from them."""
    drew: tuple[str, ...] = ()
    """Generators that one device draws from in some mode."""
    dropout: bool = False
    """Whether train mode was compared with dropout left out."""
    modes: tuple[str, ...] = ()
    dtype: str = "float64"
    tolerance: float = ALIKE
    rounded: tuple[tuple[tuple[str, str], float], ...] = ()
    """By kind and name: what rounding in float32 does, where the code computes in it."""

    @property
    def worst(self) -> Row | None:
        """The row that differs most beyond what is tolerated."""
        wrong = [r for r in self.rows if not r.relative <= self.allowed(r)]
        order = {"loss": 0, "output": 0}
        return min(wrong, key=lambda r: (order.get(r.kind, 1), -r.relative), default=None)

    @property
    def largest(self) -> float:
        return max((r.relative for r in self.rows), default=0.0)

    def allowed(self, row: Row) -> float:
        return max(self.tolerance, dict(self.rounded).get((row.kind, row.name), 0.0))


class UnlikeError(Exception):
    """Tensors of the ranks that cannot be told to be pieces of the model's."""


Agree = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Mapping[str, Any]]
"""What processes say of themselves, and the inputs -> `given.json`."""
AgreeOutputs = Callable[[Sequence[Sequence[Mapping[str, Any]]]], Sequence[Mapping[str, Any]]]
"""What each process says of its outputs -> `outputs.json`."""


class _Run:
    """All runs of one order."""

    def __init__(self, order: Order, agree: Agree, outputs: AgreeOutputs, folder: Path) -> None:
        self.order, self.agree, self.outputs, self.folder = order, agree, outputs, folder
        self.size = order.mesh.size
        self.dtype = "float64"
        self.seeds = order.seeds
        self.known: dict[str, str] = {}
        """Files that the first run made, which hold for all."""
        self.number = 0
        self.at: dict[Mode, Path] = {}
        self.rows: list[Row] = []
        self.drew: dict[str, dict[str, list[str]]] = {}
        self.unlike = ""
        library = "transformers" if "hf" in (order.one.kind, order.many.kind) else ""
        self.launcher = launcher(library)

    def run(self, mode: Mode, against: Path | None = None) -> tuple[list[Row], Failed | None]:
        """Run all processes in a mode; what they differ in, or what ended one. One device alone is
        compared with what it computed in the folder `against`."""
        at = self.at[mode] = self.folder / str(self.number)
        self.number += 1
        at.mkdir()
        for name, text in self.known.items():
            (at / name).write_text(text)
        order = {
            **asdict(replace(self.order, mesh=Mesh())),
            "one": _side(self.order.one),
            "many": _side(self.order.many),
            "mesh": list(self.order.mesh.dims),
            "inputs": None if self.order.inputs is None else list(self.order.inputs),
            "dtype": self.dtype,
            "seeds": self.seeds,
            "against": str(against or ""),
            "patience": PATIENCE_S,
            **asdict(mode),
            "alone": self.order.alone,
            "gradients": mode.gradients,
        }
        (at / "order.json").write_text(json.dumps(order))
        count = 1 if mode.alone else self.size + 1
        said = {"given": "given.json" in self.known, "outputs": "outputs.json" in self.known}
        status = self.launcher.launch(
            at, count, self.order.seconds, lambda: self._meanwhile(at, count, said)
        )
        failed = self._failed(at, status, mode)
        if failed is not None:
            return [], failed
        rows: list[Row] = []
        for process in range(count):
            found = json.loads((at / f"rank-{process}.json").read_text())
            rows += [_row(process - 1, mode, r) for r in found["rows"]]
            if process == 0:
                self.drew[str(mode)] = found["drew"]
            for name, lines in found["drew"].items():
                held = self.drew[str(mode)].setdefault(name, [])
                held += [x for x in lines if x not in held]
        for name in ("given.json", "outputs.json", "inputs.json", "outputs-0.json"):
            if (at / name).exists() and not mode.alone:
                self.known[name] = (at / name).read_text()
        return rows, None

    def _meanwhile(self, at: Path, count: int, said: dict[str, bool]) -> None:
        """Answer processes that have said what they are."""
        if self.unlike or count == 1:
            return
        if not said["given"]:
            names = [at / f"described-{n}.json" for n in range(count)]
            if all(p.exists() for p in (*names, at / "inputs.json")):
                described = [json.loads(p.read_text()) for p in names]
                inputs = json.loads((at / "inputs.json").read_text())
                said["given"] = True
                self._answer(at / "given.json", lambda: self.agree(described, inputs))
        if said["given"] and not said["outputs"] and not self.unlike:
            names = [at / f"outputs-{n}.json" for n in range(count)]
            if all(p.exists() for p in names):
                outputs = [json.loads(p.read_text()) for p in names]
                said["outputs"] = True
                self._answer(at / "outputs.json", lambda: self.outputs(outputs))

    def _answer(self, path: Path, make: Callable[[], Any]) -> None:
        try:
            text = json.dumps(make())
        except UnlikeError as problem:
            self.unlike = str(problem)
            text = "null"  # which ends every rank
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(path)

    def _failed(self, at: Path, status: Sequence[int | None], mode: Mode) -> Failed | None:
        if self.unlike or all(code == 0 for code in status):
            return Failed(0, "UnlikeError", self.unlike, "build", "") if self.unlike else None
        found: list[Failed] = []
        for process in range(len(status)):
            file = at / f"error-{process}.json"
            if file.exists():
                found.append(
                    Failed(process=process, mode=str(mode), **json.loads(file.read_text()))
                )
        first = min(found, key=lambda f: (_waited(f), f.process), default=None)
        if first is not None and not _waited(first):
            return first
        for process, code in enumerate(status):
            if code not in (0, 1, None):
                message = f"it ended with code {code}"
                return Failed(process, "Exit", message, "run", str(mode))
        waiting = first.process if first else next(i for i, c in enumerate(status) if c is None)
        log = (at / f"{waiting}.log").read_text(errors="replace")
        message = first.message if first else "it does not end"
        where = (first.file, first.line, first.text) if first else ("", 0, "")
        return Failed(waiting, "Stuck", message or log[-500:], "stuck", str(mode), *where)


def _row(rank: int, mode: Mode, found: Mapping[str, Any]) -> Row:
    return Row(rank=rank, mode=str(mode), **{**found, "at": tuple(found.get("at", ()))})


def _waited(failed: Failed) -> bool:
    """Whether a process ended because another one did not come."""
    words = ("Timed out waiting", "Connection closed by peer", "Connection reset", "timed out")
    return any(w in failed.message for w in words)


def _side(side: Side) -> dict[str, Any]:
    found = asdict(side)
    if side.plan is None:
        found.pop("plan")
    return found


def run(order: Order, agree: Agree, outputs: AgreeOutputs, parameters: int = 0) -> Ran:
    """Run one device and all ranks in every mode: train and eval mode, with gradients and under
    `no_grad`, two calls for each of three seeds; generators seeded alike on all ranks, and where
    one is drawn from, by rank once more.

    Args:
        agree: which pieces the parameters, buffers and inputs of each rank are.
        outputs: the same of outputs.
        parameters: their number, where it is known: of a large model one seed is run.

    Raises:
        LaunchError: no processes could be started.
    """
    with tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True) as scratch:
        made = _Run(order, agree, outputs, Path(scratch))
        if parameters > LARGE:
            made.seeds = order.seeds[:1]
        return _all(made)


def _all(made: _Run) -> Ran:
    order = made.order
    modes = [
        Mode(mode == "train", gradients)
        for gradients in ((True, False) if order.gradients else (False,))
        for mode in order.modes
    ]
    rows: list[Row] = []
    dropped = False
    done: list[Mode] = []
    for mode in modes:
        found, failed = made.run(mode)
        if failed is not None and _of_dtype(failed) and made.dtype == "float64":
            made.dtype, made.known = "float32", {}
            found, failed = made.run(mode)
        if failed is not None:
            return _ended(made, rows, failed, done)
        if _differ(found) and mode.train and "torch" in made.drew[str(mode)]:
            plain = replace(mode, without_dropout=True)
            again, failed = made.run(plain)
            if failed is None and not _differ(again):
                mode, found, dropped = plain, again, True
        done.append(mode)
        rows += found
    ran = Ran(tuple(rows), dropout=dropped, modes=tuple(map(str, done)), dtype=made.dtype)
    ran = replace(ran, drew=tuple(sorted({n for d in made.drew.values() for n in d})))
    if ran.worst is not None:
        ran = replace(ran, rounded=_rounding(made, done[0]))
    if ran.worst is None:
        ran = replace(ran, seeds=_seeds(made, done))
    return ran


def _ended(made: _Run, rows: Sequence[Row], failed: Failed, done: Sequence[Mode]) -> Ran:
    if made.unlike:
        return Ran(unlike=made.unlike)
    return Ran(tuple(rows), failed, modes=tuple(map(str, done)), dtype=made.dtype)


def _differ(rows: Sequence[Row]) -> bool:
    return any(not r.relative <= ALIKE for r in rows)


def _of_dtype(failed: Failed) -> bool:
    """Whether code asks for float32 by name, so that it cannot be run in float64."""
    words = ("dtype", "scalar type", "Double", "Float")
    return failed.kind in ("RuntimeError", "TypeError", "ValueError") and any(
        w in failed.message for w in words
    )


def _rounding(made: _Run, mode: Mode) -> tuple[tuple[tuple[str, str], float], ...]:
    """By how much one device alone differs where its values are rounded as float32 rounds them."""
    rows, _ = made.run(replace(mode, alone=True, nudge=NUDGE), made.at[mode])
    most: dict[tuple[str, str], float] = {}
    for r in rows:
        key = r.kind, r.name
        most[key] = max(most.get(key, 0.0), ROUNDED * r.relative)
    return tuple(most.items())


def _seeds(made: _Run, done: Sequence[Mode]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Generators of which the ranks must draw alike, with the lines."""
    out: dict[str, list[str]] = {}
    for mode in done:
        for name in made.drew[str(mode)]:
            if mode.without_dropout and name == "torch":
                continue
            varied = replace(mode, varied=name)
            rows, failed = made.run(varied)
            if failed is not None or _differ(rows):
                lines = out.setdefault(name, [])
                lines += [x for x in made.drew[str(varied)].get(name, []) if x not in lines]
    return tuple((name, tuple(lines)) for name, lines in out.items())


__all__ = ["Failed", "LaunchError", "Mode", "Order", "Ran", "Row", "Side", "UnlikeError", "run"]
