"""Runs a model on one device and its parallel form on every rank, and compares them.

The processes run the owner's code as it stands (`rank.py`). What they hold of which tensor is
decided here, once, from what they say of themselves.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shardproof.synthesis.execute.run.launcher import LaunchError, launcher
from shardproof.synthesis.frontends.torch.homes import FOREIGN, Moved, home_of, ways
from shardproof.synthesis.frontends.torch.process import owners
from shardproof.verifier.kernel.program.types import Mesh

SEEDS = (0, 1, 2)
CALLS = 2
ALIKE = 1e-9
"""The largest relative difference of two runs in float64 that are alike."""
NUDGES = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""By how much values are changed to see what rounding in a type does to them."""
LEAST = {"float32": 16, "float16": 4, "bfloat16": 4}
"""How many times that a sum differs by in another order, though no nudge of its terms shows it."""
ROUNDED = {"float32": 30.0, "float16": 4.0, "bfloat16": 4.0}
"""How many times what a nudge does a difference may be: fewer where a nudge is large."""
LARGE = 2_000_000
"""Parameters beyond which one seed is run instead of all."""
PARAMETERS = 50_000_000
PROCESSES = 8
"""A model with more parameters, or a mesh with more ranks, is run only where that is asked for."""
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
    module: str = ""
    """What the file is imported as; empty where it is a member of no package."""
    paths: tuple[str, ...] = ()
    """Folders that its imports are looked up in before those of Python."""
    late: tuple[str, ...] = ()
    """And after them."""
    model: "Side | None" = None
    """What is built first, and given as the argument `model`."""
    plan: str | Mapping[str, str] | None = None
    """Of a class of transformers, on a rank."""


def of_file(
    name: str,
    file: Path,
    config: Mapping[str, Any],
    moved: Moved | None = None,
    model: Side | None = None,
) -> Side:
    """A class or a function of the owner's file, imported as `homes` says; `moved`: the file lies
    in a copy of a folder."""
    home = home_of(file)
    first, last = ways(home, moved)
    module = home.name if home.packaged else ""
    return Side("file", name, str(home.file), config, module, first, last, model)


@dataclass(frozen=True)
class Order:
    """What is run."""

    one: Side
    many: Side
    mesh: Mesh
    inputs: tuple[Mapping[str, Any], ...] | None = None
    """`name`, `shape`, `dtype`, `below`, `ignored`; None: `example_inputs()` of its file."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Arguments of `example_inputs`."""
    gradients: bool = True
    no_grad: tuple[str, ...] = ()
    grads_of: tuple[str, ...] = ()
    """Inputs whose gradients are compared although the model returns its loss."""
    after_backward: str = ""
    step: str = ""
    """The training step that is called in place of the module: by how much parameters change."""
    step_of_one: str = ""
    """That of one device."""
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
    env: tuple[str, ...] = ()
    """Variables of the environment that the code is given, each `NAME` or `NAME=VALUE`."""
    filled: tuple[str, ...] = ()
    """Names and patterns of tensors whose layout is stated: buffers of floats that are named so, or
    by a pattern that no parameter fits, hold other numbers than their constructor gives them."""


@dataclass(frozen=True)
class Mode:
    """How a module is run."""

    train: bool
    gradients: bool

    def __str__(self) -> str:
        words = f"{'train' if self.train else 'eval'} mode"
        return words if self.gradients else f"{words} under torch.no_grad()"


@dataclass(frozen=True)
class Turn:
    """One time that all processes are started."""

    modes: tuple[Mode, ...]
    without_dropout: bool = False
    varied: str = ""
    """The generator that is seeded by rank: `random`, `numpy.random` or `torch`."""
    every: bool = False
    """Whether all seeds are run in modes after the first too, where one device draws nothing."""
    nudge: float = 0.0
    """By how much values are changed. Then one device runs alone."""
    floats: bool = False
    """Whether processes say in which types of floats they compute."""
    against: str = ""
    """The folder of what one device computed before, that it is compared with."""


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


@dataclass(frozen=True, slots=True)
class Difference:
    """One compared tensor, the worst over all ranks and calls."""

    kind: str
    """`output`, `loss`, `buffer`, `gradient` or `gradient of input`."""
    name: str
    relative: float
    """max|a-b| / max|b|; of a gradient, over 2e-5 of the largest entry of any at least."""
    absolute: float


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
    ranks: int = 0
    seconds: float = 0.0
    dtype: str = "float64"
    tolerance: float = ALIKE
    rounded: tuple[tuple[tuple[str, str], float], ...] = ()
    """By kind and name: what rounding does, where the code computes in fewer bits."""
    narrow: str = ""
    """The type, where that is one of 16 bits."""
    plain: bool = False
    """Whether one device fails in some mode with inputs that need a gradient, so that those of
    inputs are not compared there."""

    @property
    def worst(self) -> Row | None:
        """The row that differs most beyond what is tolerated."""
        wrong = [r for r in self.rows if not r.relative <= self.allowed(r)]
        order = {"loss": 0, "output": 0}
        return min(wrong, key=lambda r: (order.get(r.kind, 1), -r.relative), default=None)

    @property
    def largest(self) -> float:
        return max((r.relative for r in self.rows), default=0.0)

    @property
    def agrees(self) -> bool:
        """Whether it came to its end, and nothing differs."""
        return self.failed is None and not self.unlike and self.worst is None

    @property
    def differences(self) -> tuple[Difference, ...]:
        most: dict[tuple[str, str], Row] = {}
        for r in self.rows:
            known = most.setdefault((r.kind, r.name), r)
            if r.relative > known.relative:
                most[r.kind, r.name] = r
        return tuple(
            Difference(kind, name, r.relative, r.absolute) for (kind, name), r in most.items()
        )

    @property
    def limit(self) -> float:
        """What the row that differs most may differ by."""
        return self.allowed(max(self.rows, key=lambda r: r.relative)) if self.rows else ALIKE

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
        """Files that the first turn made, which hold for all."""
        self.number = 0
        self.unlike = ""
        library = "transformers" if "hf" in (order.one.kind, order.many.kind) else ""
        self.launcher = launcher(library)

    def turn(self, turn: Turn) -> "_Turned | Failed":
        """Start all processes once: what they differ in, or what ended one."""
        at = self.folder / str(self.number)
        self.number += 1
        at.mkdir()
        for name, text in self.known.items():
            (at / name).write_text(text)
        order = {
            **asdict(replace(self.order, mesh=Mesh())),
            **asdict(turn),
            "one": to_json(self.order.one),
            "many": to_json(self.order.many),
            "mesh": list(self.order.mesh.dims),
            "inputs": None if self.order.inputs is None else list(self.order.inputs),
            "dtype": self.dtype,
            "seeds": self.seeds,
            "patience": PATIENCE_S,
            "foreign": FOREIGN,
        }
        (at / "order.json").write_text(json.dumps(order))
        count = 1 if turn.nudge else self.size + 1
        said = {"given": "given.json" in self.known, "outputs": "outputs.json" in self.known}
        status = self.launcher.launch(
            at,
            count,
            self.order.seconds,
            lambda: self._meanwhile(at, count, said),
            owners(self.order.env),
        )
        failed = failure(at, status, tuple(map(str, turn.modes)))
        if self.unlike:
            failed = Failed(0, "UnlikeError", self.unlike, "build", "")
        if failed is not None:
            return failed
        found = _Turned(at)
        for process in range(count):
            data = json.loads((at / f"rank-{process}.json").read_text())
            found.rows += [_row(process - 1, turn, r) for r in data["rows"]]
            found.floats.update(data["floats"])
            found.plain = found.plain or data["plain"]
            for number, drew in data["drew"].items():
                held = found.drew.setdefault(str(turn.modes[int(number)]), {})
                for name, lines in drew.items():
                    held.setdefault(name, []).extend(lines)
        for name in ("given.json", "outputs.json", "inputs.json", "outputs-0.json"):
            if (at / name).exists():
                self.known[name] = (at / name).read_text()
        return found

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


@dataclass
class _Turned:
    """What came of one time that all processes were started."""

    at: Path
    rows: list[Row] = field(default_factory=list[Row])
    drew: dict[str, dict[str, list[str]]] = field(default_factory=dict[str, dict[str, list[str]]])
    """By mode and generator: the lines that draw, where they were looked for."""
    floats: set[str] = field(default_factory=set[str])
    """Types of floats that some process computes in, where they were looked for."""
    plain: bool = False
    """Whether inputs needed no gradient in some mode."""

    def seeds(self, mode: Mode) -> int:
        return len({r.seed for r in self.rows if r.mode == str(mode)})

    def differ(self, mode: Mode | None = None) -> bool:
        rows = [r for r in self.rows if mode is None or r.mode == str(mode)]
        return any(not r.relative <= ALIKE for r in rows)


def _row(rank: int, turn: Turn, found: Mapping[str, Any]) -> Row:
    number: int = found["mode"]
    mode = str(turn.modes[number]) + ", dropout left out" * turn.without_dropout
    fields: dict[str, Any] = {**found, "at": tuple(found.get("at", ())), "mode": mode}
    return Row(rank=rank, **fields)


def failure(at: Path, status: Sequence[int | None], modes: Sequence[str]) -> Failed | None:
    """What ended a run in a folder, by the exit statuses of its processes; None where all came to
    their end. `modes`: what they were at, in words, by number."""
    if all(code == 0 for code in status):
        return None
    found: list[Failed] = []
    for process in range(len(status)):
        file = at / f"error-{process}.json"
        if file.exists():
            said = json.loads(file.read_text())
            mode: int = said.pop("mode")
            found.append(Failed(process=process, mode=modes[mode], **said))
    first = min(found, key=lambda f: (_waited(f), f.process), default=None)
    if first is not None and not _waited(first):
        return first
    ended = next((p for p, c in enumerate(status) if c not in (0, 1, None)), None)
    if ended is not None:
        return Failed(ended, "Exit", f"it ended with code {status[ended]}", "run", "a run")
    if first is not None:
        return replace(first, kind="Stuck", stage="stuck")
    waiting = next((p for p, c in enumerate(status) if c != 0), 0)
    return Failed(waiting, "Stuck", "it does not end", "stuck", "a run")


def _waited(failed: Failed) -> bool:
    """Whether a process ended because another one did not come."""
    words = ("Timed out waiting", "Connection closed by peer", "Connection reset", "timed out")
    return any(w in failed.message for w in words)


def to_json(side: Side) -> dict[str, Any]:
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
        start = time.monotonic()
        ran = _all(made)
        return replace(ran, ranks=order.mesh.size, seconds=time.monotonic() - start)


def _all(made: _Run) -> Ran:
    order = made.order
    modes = tuple(
        Mode(mode == "train", gradients)
        for gradients in ((True, False) if order.gradients else (False,))
        for mode in order.modes
    )
    modes = (Mode(True, True),) if order.step else modes
    found = made.turn(Turn(modes))
    if isinstance(found, Failed) and of_dtype(found):
        made.dtype, made.known = "float32", {}
        found = made.turn(Turn(modes))
    if made.unlike:
        return Ran(unlike=made.unlike)
    if isinstance(found, Failed):
        return Ran(failed=found, modes=tuple(map(str, modes)), dtype=made.dtype)
    rows = found.rows
    late = tuple(m for m in modes if str(m) in found.drew and found.seeds(m) < len(made.seeds))
    if late:
        again = made.turn(Turn(late, every=True))
        if isinstance(again, Failed):
            return Ran(failed=again, modes=tuple(map(str, modes)), dtype=made.dtype)
        rows = found.rows = [*found.rows, *again.rows]
    dropped = [m for m in modes if m.train and "torch" in found.drew.get(str(m), {})]
    dropped = [m for m in dropped if found.differ(m)]
    rounded: tuple[tuple[tuple[str, str], float], ...] = ()
    drew = {name for drawn in found.drew.values() for name in drawn}
    if dropped:
        plain = made.turn(Turn(tuple(dropped), without_dropout=True))
        tells = False
        if isinstance(plain, _Turned):
            if plain.differ():
                rounded = _rounding(made, modes, found)
            still = {name for drawn in plain.drew.values() for name in drawn}
            alike = Ran(tuple(plain.rows), rounded=rounded).worst is None
            # What differs where nothing is drawn differs by more than what is drawn.
            tells = alike or (dropped == list(modes) and "torch" not in still)
            drew -= set() if alike or not tells else {"torch"}
            left = {str(m) for m in dropped}
            rows = [*(r for r in rows if r.mode not in left), *plain.rows] if tells else rows
        dropped = dropped if tells else []
    ran = Ran(
        tuple(rows),
        drew=tuple(sorted(drew)),
        dropout=bool(dropped),
        modes=tuple(
            str(m) + ", dropout left out" * (m in dropped) for m in modes if found.seeds(m)
        ),
        dtype=made.dtype,
        rounded=rounded,
        plain=found.plain,
    )
    if ran.worst is not None and not rounded:
        ran = replace(ran, rounded=_rounding(made, modes, found))
    if ran.worst is not None:
        seen = made.turn(Turn(modes, floats=True))
        narrow = seen.floats & {"float16", "bfloat16"} if isinstance(seen, _Turned) else ()
        for name in sorted(narrow, key=NUDGES.__getitem__):
            ran = replace(ran, rounded=_rounding(made, modes, found, name), narrow=name)
    if ran.worst is not None:
        return ran
    return replace(ran, seeds=_seeds(made, modes, found, dropped))


def of_dtype(failed: Failed) -> bool:
    """Whether code asks for float32 by name, so that it cannot be run in float64."""
    words = ("dtype", "scalar type", "Double", "Float")
    if failed.kind == "AssertionError":  # which may say nothing of why
        return True
    return failed.kind in ("RuntimeError", "TypeError", "ValueError") and any(
        w in failed.message for w in words
    )


def _rounding(
    made: _Run, modes: Sequence[Mode], found: _Turned, kind: str = "float32"
) -> tuple[tuple[tuple[str, str], float], ...]:
    """By how much one device alone differs where its values are rounded as a type rounds them."""
    nudge = NUDGES[kind]
    nudged = made.turn(Turn(tuple(modes), nudge=nudge, against=str(found.at)))
    if isinstance(nudged, Failed):
        return ()
    return rounding(nudged.rows, kind)


def rounding(
    rows: Sequence[Row], kind: str = "float32"
) -> tuple[tuple[tuple[str, str], float], ...]:
    """By kind and name, the difference that is taken for rounding in a type, where one device
    differs from itself as `rows` say once its values are changed as the type rounds them."""
    most: dict[tuple[str, str], float] = {}
    for r in rows:
        key = r.kind, r.name
        most[key] = max(most.get(key, LEAST[kind] * NUDGES[kind]), ROUNDED[kind] * r.relative)
    return tuple(most.items())


def _seeds(
    made: _Run, modes: Sequence[Mode], found: _Turned, dropped: Sequence[Mode]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Generators of which the ranks must draw alike, with the lines."""
    out: dict[str, tuple[str, ...]] = {}
    for name in sorted({n for drew in found.drew.values() for n in drew}):
        drawing = [
            m
            for m in modes
            if name in found.drew.get(str(m), {}) and not (name == "torch" and m in dropped)
        ]
        varied = made.turn(Turn(tuple(drawing), varied=name)) if drawing else None
        if isinstance(varied, Failed):
            out[name] = ()
        elif varied is not None and varied.differ():
            lines = [x for drew in varied.drew.values() for x in drew.get(name, [])]
            out[name] = tuple(dict.fromkeys(lines))
    return tuple(out.items())


__all__ = ["Failed", "LaunchError", "Order", "Ran", "Row", "Side", "UnlikeError", "run"]
