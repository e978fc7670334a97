"""Extents of library code: which attributes become local, and which results are written into."""

from __future__ import annotations

import ast

import pytest

from shardproof.synthesis.emit.attributes import AttributeChange, attribute_changes, calls_another
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.methods import MethodChange, method_changes
from shardproof.synthesis.emit.parallelize import changed
from shardproof.synthesis.emit.values import assigned
from shardproof.synthesis.planner.plan import LocalExtent

LIBRARY = """import torch

class Attention:
    def _split(self, x, heads, size):
        shape = x.size()[:-1] + (heads, size)
        return x.view(shape)

    def _merge(self, x):
        return x.reshape(4, 8, self.width)

    def forward(self, x):
        query = self._split(self.q(x), self.heads, self.size)
        key = query.reshape(4, 8, self.kv_heads, self.size)
        bias = torch.zeros((1, 8, self.more, 16))
        return self._merge(key + bias).view(4, 8, self.rows, 16)
"""
INTS = {"heads": 4, "kv_heads": 4, "more": 4, "size": 16, "width": 64, "rows": 3}


def changes(*extents: tuple[int, str, tuple[int, ...], tuple[int, ...]]) -> set[AttributeChange]:
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    given = [LocalExtent("lib.py", n, op, "h.*.attn", a, b) for n, op, a, b in extents]
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    return set(attribute_changes(facts, given, 2, lambda _: LIBRARY))


PLAIN = ModelFacts("model.py:M", "M", {})


def test_extents_in_methods_and_in_reshapes_that_change_nothing_are_found() -> None:
    """Capture names the line of forward alone, and sees no reshape to the same shape."""
    found = changes((12, "reshape", (4, 8, 4, 16), (4, 8, 2, 16)))
    assert {c.name for c in found} == {"heads", "kv_heads", "more"}
    assert {c.divisor for c in found} == {"tp.size()"}


def test_attributes_that_say_another_number_stay() -> None:
    assert {c.name for c in changes((15, "reshape", (4, 8, 64), (4, 8, 32)))} == {"width"}


def test_parts_of_blocks_that_are_numbered_are_indexed() -> None:
    change = AttributeChange("encoder.block.*.layer.0.attention", "heads", divisor="tp.size()")
    assert changed(PLAIN, [change], 88) == [
        "    for block in model.encoder.block:",
        "        block.layer[0].attention.heads //= tp.size()",
    ]


SPLIT = """class Attention:
    def split(self, t):
        batch, length, width = t.size()
        size = width // self.heads
        return t.view(batch, length, self.heads, size).transpose(1, 2)

    def forward(self, x):
        return self.split(self.query(x))
"""


def test_heads_of_what_a_call_makes_are_local_where_they_size_what_stays() -> None:
    """`size` stays, since the width of what `query` gives is local too."""
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints={"heads": 4})
    facts = ModelFacts("model.py:M", "M", {}, modules=(fact,))
    extent = LocalExtent("model.py", 8, "reshape", "h.0.attn", (4, 8, 4, 16), (4, 8, 2, 16))
    (change,) = attribute_changes(facts, [extent], 2, lambda _: SPLIT)
    assert (change.name, change.divisor) == ("heads", "tp.size()")


LAMBDA = """class Attention:
    def forward(self, x):
        b, h = x.shape[0], self.heads
        shape = lambda t: t.view(b, -1, self.heads, self.size).transpose(1, 2)
        q, k = shape(self.q(x)), shape(self.k(x))
        merged = q.reshape(b * h, x.shape[1], -1)
        return merged @ k.reshape(b * h, -1, x.shape[1])
"""


@pytest.mark.parametrize(
    ("line", "whole", "local"),
    [(5, (2, 8, 4, 16), (2, 8, 2, 16)), (6, (8, 8, 16), (4, 8, 16))],
)
def test_heads_in_a_lambda_or_in_a_product_of_names_are_local(
    line: int, whole: tuple[int, ...], local: tuple[int, ...]
) -> None:
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints={"heads": 4, "size": 16})
    facts = ModelFacts("model.py:M", "M", {}, modules=(fact,))
    extent = LocalExtent("model.py", line, "reshape", "h.0.attn", whole, local)
    (change,) = attribute_changes(facts, [extent], 2, lambda _: LAMBDA)
    assert (change.name, change.divisor) == ("heads", "tp.size()")
    assert calls_another(ast.parse(LAMBDA), line) == (line == 5)


SIZES = """class Attention:
    def _merge(self, y, dim):
        return y.view(dim.batch, -1, dim.wide)

    def forward(self, x):
        dim = Sizes(batch=x.shape[0], heads=self.heads, wide=x.shape[2])
        batch, tokens, width = x.size()
        y = self.v(x).view(batch, tokens, self.heads, self.size)
        _, heads, _, size = y.shape
        y = y.reshape(batch, tokens, heads * size)
        y = y.reshape(batch, tokens, width)
        z = y.view(dim.batch, dim.tokens, dim.wide)
        shape = (batch, tokens, width)
        return z + y.view(shape) + self._merge(y, dim)
"""


def edited(*lines: int, more: tuple[str, ...] = ()) -> list[MethodChange]:
    kinds = ("h.0.attn", "h.1.attn")
    modules = tuple(ModuleFact(p, "Attention", "Attention", ints=INTS) for p in kinds)
    facts = ModelFacts("hf:M", "M", {}, modules=modules)
    given = [LocalExtent("lib.py", n, "reshape", "h.0.attn", (4, 8, 64), (4, 8, 32)) for n in lines]
    given += [LocalExtent("lib.py", 11, "reshape", p, (4, 8, 64), (4, 8, 32)) for p in more]
    return method_changes(facts, given, lambda _: SIZES)


def test_an_extent_of_what_forward_is_given_becomes_free_at_the_reshape() -> None:
    """`width` of `batch, tokens, width = x.size()` is whole elsewhere."""
    (change,) = edited(11)
    assert (change.path, change.name) == ("h.0.attn", "forward")
    assert change.texts == (".reshape(batch, tokens, width)", ".reshape(batch, tokens, -1)")


def test_an_extent_kept_in_a_field_is_followed() -> None:
    (change,) = edited(12)
    assert change.texts == (
        ".view(dim.batch, dim.tokens, dim.wide)",
        ".view(dim.batch, dim.tokens, -1)",
    )


def test_a_shape_given_by_name_is_changed_where_it_is_made() -> None:
    (change,) = edited(14)
    assert change.texts == ("shape = (batch, tokens, width)", "shape = (batch, tokens, -1)")


def test_a_method_that_is_given_the_field_is_followed() -> None:
    (change,) = edited(3)
    assert change.name == "_merge"
    assert change.texts[1] == ".view(dim.batch, -1, y.size(-1))"


def test_what_a_local_tensor_or_an_attribute_tells_stays() -> None:
    assert edited(10) == []
    extent = LocalExtent("lib.py", 8, "reshape", "h.0.attn", (4, 8, 4, 16), (4, 8, 2, 16))
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    assert method_changes(facts, [extent], lambda _: SIZES) == []


WIDTHS = """class Attention:
    def forward(self, x):
        batch, tokens, width = x.shape
        y = self.v(x).reshape(batch, tokens, self.heads, width // self.heads)
        return y.transpose(1, 2)
"""


def test_an_attribute_that_also_makes_an_extent_that_stays_is_left() -> None:
    """`width` is that of the whole stream: it is to be divided by all heads."""
    extent = LocalExtent("lib.py", 4, "reshape", "h.0.attn", (4, 8, 4, 16), (4, 8, 2, 16))
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    assert attribute_changes(facts, [extent], 2, lambda _: WIDTHS) == []
    (change,) = method_changes(facts, [extent], lambda _: WIDTHS)
    assert change.texts[1] == ".reshape(batch, tokens, -1, width // self.heads)"


def test_an_attribute_beside_a_width_that_is_local_too_is_divided() -> None:
    source = WIDTHS.replace("self.v(x).", "v.").replace("x.shape", "v.shape")
    source = source.replace("        batch,", "        v = self.v(x)\n        batch,")
    extent = LocalExtent("lib.py", 5, "reshape", "h.0.attn", (4, 8, 4, 16), (4, 8, 2, 16))
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    (change,) = attribute_changes(facts, [extent], 2, lambda _: source)
    assert (change.name, change.divisor) == ("heads", "tp.size()")


MERGED = """class Attention:
    def forward(self, x):
        query = self.q(x).view(-1, self.heads, self.size)
        out = self.mix(query)
        return out.view(-1, self.size * self.heads)
"""


def test_one_factor_of_a_product_is_divided_that_which_another_shape_tells_of() -> None:
    made = LocalExtent("lib.py", 3, "reshape", "h.0.attn", (8, 4, 16), (8, 2, 16))
    merged = LocalExtent("lib.py", 5, "reshape", "h.0.attn", (8, 64), (8, 32))
    fact = ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS)
    facts = ModelFacts("hf:M", "M", {}, modules=(fact,))
    for extents, name in (([merged, made], "heads"), ([merged], "size")):
        (change,) = attribute_changes(facts, extents, 2, lambda _: MERGED)
        assert (change.name, change.divisor) == (name, "tp.size()")


def test_modules_of_a_class_have_the_same_changes() -> None:
    """Capture may not see code of one of them: no output is made of it."""
    one, other = edited(11, 12, more=("h.1.attn",))
    assert (one.path, other.path) == ("h.0.attn", "h.1.attn")
    assert one.texts == other.texts
    assert len(one.texts) == 4


def test_methods_are_edited_beside_attributes_in_one_loop() -> None:
    changes = [
        AttributeChange("layers.*.attn", "heads", divisor="tp.size()"),
        MethodChange("layers.*.attn", "forward", (".view(b)", ".view(-1)")),
    ]
    assert changed(PLAIN, changes, 88) == [
        "    for block in model.layers:",
        '        edited_method(block.attn, "forward", ".view(b)", ".view(-1)")',
        "        block.attn.heads //= tp.size()",
    ]


def test_an_attribute_of_a_module_that_forward_replaces_is_divided_when_it_is_there() -> None:
    """Capture names the module that holds it, as it had none of that class before."""
    modules = (
        ModuleFact("h.0", "Block", "Block"),
        ModuleFact("h.0.attn", "Attention", "Attention", ints=INTS, replaced=True),
    )
    facts = ModelFacts("hf:M", "M", {}, modules=modules)
    extent = LocalExtent("lib.py", 15, "reshape", "h.*", (4, 8, 64), (4, 8, 32))
    (change,) = attribute_changes(facts, [extent], 2, lambda _: LIBRARY)
    assert (change.path, change.name, change.replaced) == ("h.*.attn", "width", True)
    assert changed(PLAIN, [change], 88) == [
        "    for block in model.h:",
        '        divide_held(block, "attn", "width", tp.size())',
    ]
    assert method_changes(facts, [extent], lambda _: LIBRARY) == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("h = self.heads", "self.heads"),
        ("b, n, h = *x.shape[:2], self.heads", "self.heads"),
        ("h, b, n = self.heads, *x.shape[:2]", "self.heads"),
        ("(h, k), n = (self.heads, self.kv), 1", "self.heads"),
        ("n, *h = self.length, self.heads", None),
        ("b, h = x.shape[:2]", None),
    ],
)
def test_names_are_assigned_by_place(line: str, value: str | None) -> None:
    function = ast.parse(f"def forward(self, x):\n    {line}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    found = [ast.unparse(v) for v in assigned(function, "h")]
    assert found == ([] if value is None else [value])
