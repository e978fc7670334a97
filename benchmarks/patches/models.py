"""Random model files as users write them: plain PyTorch that says nothing of parallelism.

The same seed gives the same file. A file has a class `M`, and `example_inputs()`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.patches.losses import ROW_LOSSES, TOKEN_LOSSES, VALUE_LOSSES
from benchmarks.patches.pieces import COUPLING, PLAIN, Piece

MESHES = ("tp=2", "dp=2", "dp=2,tp=2")
HEAD = """import math

import torch
from torch import nn
from torch.nn import functional as F
"""
ACTIVATIONS = ("F.relu", "F.gelu", "F.silu", "torch.tanh", "torch.sigmoid")


@dataclass(frozen=True, slots=True)
class Generated:
    """A model file, the meshes it is planned for, and what is in it."""

    name: str
    """The seed, or the name of the file."""
    source: str
    meshes: tuple[str, ...]
    features: tuple[str, ...] = ()


@dataclass
class Module:
    """A class being written."""

    name: str
    setup: list[str] = field(default_factory=list[str])
    forward: list[str] = field(default_factory=list[str])
    arguments: str = "x"

    def text(self) -> str:
        lines = [f"class {self.name}(nn.Module):"]
        if self.setup:
            body = [f"        {line}" for line in self.setup]
            lines += ["    def __init__(self):", "        super().__init__()", *body, ""]
        lines.append(f"    def forward(self, {self.arguments}):")
        return "\n".join([*lines, *(f"        {line}" for line in self.forward)])


@dataclass
class _Writer:
    """One file: its extents, its classes, and the features that went in."""

    draw: random.Random
    batch: int = 8
    length: int = 0
    """Of the sequence; 0 where there is none."""
    width: int = 16
    hidden: int = 32
    classes: int = 8
    modules: list[Module] = field(default_factory=list[Module])
    features: set[str] = field(default_factory=set[str])
    made: int = 0

    def one_of(self, *options: str) -> str:
        return self.draw.choice(options)

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def piece(self, module: Module, v: str, width: int, place: str, layer: str = "") -> None:
        """Put a piece on the variable `v` into a class."""
        kind = PLAIN if self.chance(0.3 if place == "between" else 0.5) else COUPLING
        fitting = [p for p in kind if self._fits(p, bool(layer))]
        piece = self.draw.choices(fitting, [p.weight for p in fitting])[0]
        self.made += 1
        names = {"V": v, "N": width, "B": self.batch, "T": self.length, "I": self.made, "L": layer}
        setup, body = piece.lines({key: str(value) for key, value in names.items()})
        module.setup += setup
        module.forward += body
        self.features.add(f"{piece.name} ({place})")

    def _fits(self, piece: Piece, layer: bool) -> bool:
        sequence = piece.sequence is None or piece.sequence == bool(self.length)
        return sequence and (layer or not piece.layer)

    def pieces(self, module: Module, v: str, width: int, place: str, layer: str = "") -> None:
        """None, one or two of them; more where activations are split."""
        shares = (9, 9, 2) if place == "hidden" else (5, 4, 1)
        for _ in range(self.draw.choices((0, 1, 2), shares)[0]):
            self.piece(module, v, width, place, layer)

    def mlp(self, name: str) -> Module:
        """Two layers with something between them, gated or not."""
        out = Module(name)
        up, down, gate = self.draw.choice(
            [("up", "down", "gate"), ("fc1", "fc2", "fc3"), ("w_in", "w_out", "w_gate")]
        )
        bias = "" if self.chance(0.6) else ", bias=False"
        act = self.draw.choice(ACTIVATIONS)
        out.setup.append(f"self.{up} = nn.Linear({self.width}, {self.hidden}{bias})")
        kind = self.draw.choices(("plain", "gated", "halves", "deep", "reused"), (10, 3, 1, 1, 1))[
            0
        ]
        inner = self.hidden
        if kind == "gated":
            out.setup.append(f"self.{gate} = nn.Linear({self.width}, {self.hidden}{bias})")
            out.forward.append(f"h = {act}(self.{gate}(x)) * self.{up}(x)")
        elif kind == "halves":
            inner = self.hidden // 2
            out.forward += [f"a, b = self.{up}(x).chunk(2, dim=-1)", f"h = a * {act}(b)"]
        elif self.chance(0.85):
            out.forward.append(f"h = {act}(self.{up}(x))")
        else:
            out.forward.append(f"h = self.{up}(x)")
        if kind == "deep":
            out.setup.append(f"self.between = nn.Linear({inner}, {inner})")
            out.forward.append(f"h = {act}(self.between(h))")
        self.pieces(out, "h", inner, "hidden", f"self.{up}")
        out.setup.append(f"self.{down} = nn.Linear({inner}, {self.width}{bias})")
        last = f"self.{down}(h)"
        if kind == "reused":
            last += f" + 0.1 * (h @ self.{up}.weight)"
        out.forward.append(f"return {last}")
        self.features.add(f"mlp {kind}")
        return out

    def attention(self, name: str) -> Module:
        """Heads over the sequence, causal or not, fused or not."""
        heads = self.draw.choice([h for h in (2, 4) if self.width // h >= 4])
        size, width, length = self.width // heads, self.width, self.length
        out = Module(name)
        if self.chance(0.35):
            out.setup.append(f"self.qkv = nn.Linear({width}, {3 * width})")
            cut = self.one_of(f"split({width}, dim=-1)", "chunk(3, dim=-1)")
            parts = [f"q, k, v = self.qkv(x).{cut}"]
            self.features.add("attention fused")
        else:
            bias = self.one_of("", ", bias=False")
            out.setup += [f"self.{n} = nn.Linear({width}, {width}{bias})" for n in "qkv"]
            parts = ["q, k, v = self.q(x), self.k(x), self.v(x)"]
        if self.chance(0.15):
            out.setup.append(f"self.norm = nn.LayerNorm({size})")
            key_norm = ["q, k = self.norm(q), self.norm(k)"]
            self.features.add("attention key norm")
        else:
            key_norm = []
        views = {
            f"{{0}}.view(b, t, {heads}, {size})": 5,
            f"{{0}}.view(b, t, -1, {size})": 5,
            f"{{0}}.reshape(b, t, {heads}, -1)": 1,
            f"{{0}}.unflatten(-1, (-1, {size}))": 2,
        }
        view = self.draw.choices(list(views), list(views.values()))[0]
        out.forward += ["b, t, c = x.shape", *parts]
        out.forward += [f"{n} = {view.format(n)}.transpose(1, 2)" for n in "qkv"]
        out.forward += key_norm
        if self.chance(0.25):
            causal = self.one_of("", ", is_causal=True")
            out.forward.append(f"y = F.scaled_dot_product_attention(q, k, v{causal})")
        else:
            root = self.one_of(
                "math.sqrt(q.size(-1))", f"{size} ** 0.5", f"math.sqrt(c // {heads})"
            )
            out.forward.append(f"scores = q @ k.transpose(-2, -1) / {root}")
            if self.chance(0.1):
                out.setup.append(f"self.mix = nn.Parameter(torch.ones({heads}, 1, 1))")
                out.forward.append("scores = scores * self.mix")
                self.features.add("attention scale of each head")
            if self.chance(0.5):
                ones = f"torch.ones({length}, {length})"
                out.setup.append(f'self.register_buffer("causal", torch.tril({ones}).bool())')
                out.forward.append(
                    'scores = scores.masked_fill(~self.causal[:t, :t], float("-inf"))'
                )
                self.features.add("attention mask buffer")
                dim = "-1"
            else:
                dim = self.draw.choices(("-1", "2", "1", "0"), (8, 2, 1, 1))[0]
                self.features.add(f"attention softmax {dim}")
            out.forward.append(f"y = F.softmax(scores, dim={dim}) @ v")
        out.forward.append("y = y.transpose(1, 2).reshape(b, t, c)")
        self.pieces(out, "y", width, "heads", "self.v" if "qkv" not in parts[0] else "")
        out.setup.append(f"self.out = nn.Linear({width}, {width})")
        out.forward.append("return self.out(y)")
        self.features.add("attention")
        return out

    def block(self, name: str) -> Module:
        """What a layer of the model is: attention and MLP with norms and residuals, or one MLP."""
        inner = [self.mlp(f"{name}Mlp")]
        if self.length and self.chance(0.55):
            inner.insert(0, self.attention(f"{name}Attention"))
        self.modules += inner
        out = Module(name)
        residual = self.chance(0.75)
        norm = self.one_of("LayerNorm", "LayerNorm", "RMSNorm", "")
        for index, module in enumerate(inner):
            part = "attention" if "Attention" in module.name else "mlp"
            given = "x"
            if norm:
                out.setup.append(f"self.norm{index} = nn.{norm}({self.width})")
                given = f"self.norm{index}(x)"
            out.setup.append(f"self.{part} = {module.name}()")
            out.forward.append(f"x = {'x + ' if residual else ''}self.{part}({given})")
        self.pieces(out, "x", self.width, "between")
        out.forward.append("return x")
        self.features.add("residual" if residual else "no residual")
        return out

    def body(self, model: Module) -> None:
        """Layers between stem and head, on the variable `x`."""
        kind = self.draw.choices(("one", "list", "two", "shared", "sequential"), (5, 4, 2, 1, 1))[0]
        names = ["Layer", "Other"] if kind == "two" else ["Layer"]
        self.modules += [self.block(name) for name in names]
        count = self.draw.choice((2, 3))
        if kind == "list":
            model.setup.append(f"self.layers = nn.ModuleList([Layer() for _ in range({count})])")
            model.forward += ["for layer in self.layers:", "    x = layer(x)"]
        elif kind == "sequential":
            model.setup.append(f"self.layers = nn.Sequential(*[Layer() for _ in range({count})])")
            model.forward.append("x = self.layers(x)")
        elif kind == "shared":
            model.setup.append("self.layer = Layer()")
            model.forward += ["x = self.layer(x)"] * 2
        else:
            model.setup += [f"self.{n.lower()} = {n}()" for n in names]
            model.forward += [f"x = self.{n.lower()}(x)" for n in names]
        self.features.add(f"layers {kind}")

    def file(self, model: Module, inputs: Sequence[str]) -> str:
        given = "".join(f"        {line},\n" for line in inputs)
        example = f"def example_inputs():\n    return {{\n{given}    }}"
        parts = [HEAD.rstrip("\n"), *(m.text() for m in (*self.modules, model)), example]
        return "\n\n\n".join(parts) + "\n"


def generate(seed: int) -> Generated:
    """The model file of a seed."""
    draw = random.Random(seed)
    w = _Writer(draw, batch=draw.choice((4, 8)), width=draw.choice((8, 16, 32)))
    w.hidden = draw.choice((2, 4)) * w.width if w.width < 32 else 64
    kind = draw.choices(("flat", "rows", "frames", "tokens"), (3, 2, 2, 4))[0]
    w.features.add(f"model {kind}")
    model = Module("M")
    if kind in ("frames", "tokens"):
        w.length = draw.choice((4, 8))
    write = {"flat": _flat, "rows": _rows, "frames": _frames, "tokens": _tokens}[kind]
    source = w.file(model, write(w, model))
    meshes = tuple(draw.sample(MESHES, draw.choices((1, 2), (2, 1))[0]))
    return Generated(str(seed), source, meshes, tuple(sorted(w.features)))


def of_file(path: Path) -> Generated:
    """A model file that names its mesh in a comment, `# mesh: tp=2`.

    Raises:
        ValueError: it names none.
    """
    source = path.read_text()
    meshes = re.findall(r"(?m)^# mesh: (\S+)$", source)
    if not meshes:
        raise ValueError(f"{path}: no line `# mesh: tp=2`")
    return Generated(f"{path.parent.name}/{path.stem}", source, tuple(meshes))


def _flat(w: _Writer, model: Module) -> list[str]:
    """One class that holds its layers itself."""
    mlp = w.mlp("M")
    model.setup, model.forward = mlp.setup, mlp.forward[:-1]
    y = mlp.forward[-1].removeprefix("return ")
    w.classes = w.width
    model.forward.append(f"y = {y}")
    return [f'"x": torch.randn({w.batch}, {w.width})', *_row_loss(w, model)]


def _rows(w: _Writer, model: Module) -> list[str]:
    features = w.draw.choice((8, 12, 16))
    model.setup.append(f"self.stem = nn.Linear({features}, {w.width})")
    model.forward.append("x = self.stem(x)")
    w.body(model)
    w.pieces(model, "x", w.width, "between")
    model.setup.append(f"self.head = nn.Linear({w.width}, {w.classes})")
    model.forward.append("y = self.head(x)")
    return [f'"x": torch.randn({w.batch}, {features})', *_row_loss(w, model)]


def _frames(w: _Writer, model: Module) -> list[str]:
    """Sequences of vectors, pooled into rows or not."""
    model.forward += []
    w.body(model)
    given = f'"x": torch.randn({w.batch}, {w.length}, {w.width})'
    model.setup.append(f"self.head = nn.Linear({w.width}, {w.classes})")
    pool = w.one_of("x.mean(1)", "x.amax(dim=1)", "x[:, -1]", "x.sum(dim=1)", "")
    w.features.add(f"pool {pool}" if pool else "no pool")
    if pool:
        model.forward += [f"x = {pool}", "y = self.head(x)"]
        w.length = 0
        return [given, *_row_loss(w, model)]
    model.forward.append("y = self.head(x)")
    return [given, *_token_loss(w, model)]


def _tokens(w: _Writer, model: Module) -> list[str]:
    """An embedding, places, layers and a head that may be tied."""
    vocab = w.classes = w.draw.choice((16, 32))
    model.setup.append(f"self.embed = nn.Embedding({vocab}, {w.width})")
    places = w.one_of("", "", "embedding", "parameter", "buffer")
    if places == "embedding":
        model.setup.append(f"self.places = nn.Embedding({w.length}, {w.width})")
        model.forward.append("x = self.embed(x) + self.places(torch.arange(x.shape[1]))")
    elif places == "parameter":
        model.setup.append(f"self.places = nn.Parameter(torch.zeros(1, {w.length}, {w.width}))")
        model.forward.append("x = self.embed(x) + self.places")
    elif places == "buffer":
        model.setup += [
            f"steps = torch.arange({w.length}).float()[:, None] / torch.arange(1, {w.width + 1})",
            'self.register_buffer("places", torch.sin(steps))',
        ]
        model.forward.append("x = self.embed(x) + self.places[: x.shape[1]]")
    else:
        model.forward.append("x = self.embed(x)")
    w.features.add(f"places {places or 'none'}")
    w.body(model)
    norm = w.one_of("LayerNorm", "RMSNorm", "")
    if norm:
        model.setup.append(f"self.norm = nn.{norm}({w.width})")
        model.forward.append("x = self.norm(x)")
    w.pieces(model, "x", w.width, "between")
    head = w.draw.choices(("own", "tied", "read"), (5, 4, 1))[0]
    if head == "read":
        model.forward.append("y = F.linear(x, self.embed.weight)")
    else:
        model.setup.append(f"self.head = nn.Linear({w.width}, {vocab}, bias=False)")
        model.forward.append("y = self.head(x)")
    if head == "tied":
        model.setup.append(
            w.one_of("self.head.weight = self.embed.weight", "self.embed.weight = self.head.weight")
        )
    w.features.add(f"head {head}")
    if w.chance(0.15):
        model.setup.append("self.embed.weight.requires_grad_(False)")
        w.features.add("frozen embedding")
    return [f'"x": torch.randint(0, {vocab}, ({w.batch}, {w.length}))', *_token_loss(w, model)]


def _loss(
    w: _Writer, model: Module, losses: dict[str, tuple[float, str]], target: str
) -> list[str]:
    """Put a loss into the model; the inputs that it takes."""
    name = w.draw.choices(list(losses), [weight for weight, _ in losses.values()])[0]
    text = losses[name][1].replace("/ B", f"/ {w.batch}")
    w.features.add(f"loss: {name}")
    model.forward += text.splitlines()
    extra = w.draw.choices(("", "weights", "no outputs"), (8, 1, 1))[0]
    if extra == "weights":
        layer = next((s.split(" =")[0] for s in model.setup if "nn.Linear" in s), "")
        if layer:
            model.forward.append(f"loss = loss + 0.1 * {layer}.weight.pow(2).mean()")
            w.features.add("loss with a weight's size")
    model.forward.append("return loss" if extra == "no outputs" else "return y, loss")
    takes = ["target"] if "target" in text else []
    inputs = [f'"target": {target}'] if takes else []
    if "mask" in text:
        takes.append("mask")
        inputs.append(f'"mask": torch.randint(0, 2, ({w.batch}, {w.length}))')
    model.arguments = ", ".join(["x", *takes])
    return inputs


def _row_loss(w: _Writer, model: Module) -> list[str]:
    kind = w.draw.choices(("classes", "values", "none"), (5, 3, 1))[0]
    if kind == "none":
        model.forward.append("return y")
        w.features.add("loss: none")
        return []
    if kind == "values":
        return _loss(w, model, VALUE_LOSSES, f"torch.randn({w.batch}, {w.classes})")
    return _loss(w, model, ROW_LOSSES, f"torch.randint(0, {w.classes}, ({w.batch},))")


def _token_loss(w: _Writer, model: Module) -> list[str]:
    if w.chance(0.1):
        model.forward.append("return y")
        w.features.add("loss: none")
        return []
    target = f"torch.randint(0, {w.classes}, ({w.batch}, {w.length}))"
    return _loss(w, model, TOKEN_LOSSES, target)
