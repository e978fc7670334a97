"""Patches of user files: minimal, applicable, bytes kept, clear errors."""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shardproof.synthesis.emit import EmitError, emit
from shardproof.synthesis.emit.extents import edit_extents
from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.source import SourceText
from shardproof.synthesis.planner.plan import LocalExtent
from shardproof.verifier.kernel.program.types import Mesh

_spec = importlib.util.spec_from_file_location("emit_models", Path(__file__).with_name("models.py"))
assert _spec
assert _spec.loader
models = importlib.util.module_from_spec(_spec)
sys.modules["emit_models"] = models
_spec.loader.exec_module(models)


def write(folder: Path, text: str = models.SOURCE) -> Path:
    path = folder / "block.py"
    path.write_bytes(text.encode())
    return path


def changed(old: str, new: str) -> list[str]:
    return [line for line in new.split("\n") if line not in set(old.split("\n"))]


def test_sharded_extents_become_mesh_independent(tmp_path: Path) -> None:
    path = write(tmp_path)
    patch = emit(models.facts(path), models.plan(str(path)), tmp_path)
    old, new = patch.files["block.py"]
    assert old == models.SOURCE
    assert "q, k, v = self.qkv(x).chunk(3, dim=2)  # three parts" in new
    assert new.count(".view(b, t, -1, c // self.heads)") == 3
    assert ".reshape(b, t, -1))" in new
    ast.parse(new)


def test_lines_the_plan_does_not_name_stay(tmp_path: Path) -> None:
    path = write(tmp_path)
    patch = emit(models.facts(path), models.plan(str(path)), tmp_path)
    removed = [x for x in patch.diff.split("\n") if x.startswith("-") and x[:3] != "---"]
    assert len(removed) == 5


def test_patch_is_the_same_each_time(tmp_path: Path) -> None:
    path = write(tmp_path)
    first = emit(models.facts(path), models.plan(str(path)), tmp_path)
    assert first == emit(models.facts(path), models.plan(str(path)), tmp_path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("final", [True, False])
def test_line_ends_are_kept(tmp_path: Path, newline: str, final: bool) -> None:
    text = models.SOURCE if final else models.SOURCE.rstrip("\n")
    path = write(tmp_path, text.replace("\n", newline))
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert new.endswith("\n") == final
    assert new.count("\r\n") == (new.count("\n") if newline == "\r\n" else 0)


def test_names_outside_ascii_before_an_edit_do_not_shift_it(tmp_path: Path) -> None:
    path = write(tmp_path, models.SOURCE.replace("q, k, v = ", "ä, k, v = "))
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert "ä, k, v = self.qkv(x).chunk(3, dim=2)" in new


def test_functions_go_before_the_main_guard(tmp_path: Path) -> None:
    main = '\n\nif __name__ == "__main__":\n    print(1)\n'
    path = write(tmp_path, models.SOURCE + main)
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert new.index("def parallelize(") < new.index("if __name__")
    assert new.endswith(main)


def test_beside_another_minus_one_the_last_dims_are_joined_or_parted(tmp_path: Path) -> None:
    text = models.SOURCE.replace("reshape(b, t, c)", "reshape(-1, t, c)")
    text = text.replace("q.view(b, t, self.heads, c", "(q + 0).view(b, -1, self.heads, c")
    path = write(tmp_path, text)
    new = emit(models.facts(path), models.plan(str(path)), tmp_path)
    assert "self.out(y.transpose(1, 2).flatten(-2))" in new.files["block.py"][1]
    assert (
        "q = (q + 0).unflatten(-1, (-1, c // self.heads)).transpose(1, 2)"
        in (new.files["block.py"][1])
    )


def test_an_extent_beside_another_minus_one_is_an_error_with_its_line(tmp_path: Path) -> None:
    text = models.SOURCE.replace(
        "y.transpose(1, 2).reshape(b, t, c)", "torch.reshape(y, (-1, t, c))"
    )
    path = write(tmp_path, text)
    line = models.line_of(".reshape(")
    with pytest.raises(EmitError, match=rf"block.py:{line}: reshape has extents \[2, 4, 8\]"):
        emit(models.facts(path), models.plan(str(path)), tmp_path)


def test_an_extent_of_an_operation_on_a_line_that_writes_another_needs_no_edit(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, models.SOURCE.replace("reshape(b, t, c)", "reshape(b, t, -1)"))
    plan = models.plan(str(path))
    line = models.line_of(".reshape(")
    inner = LocalExtent(str(path), line, "reshape", "", (8, 4, 2), (4, 4, 2))
    more = replace(plan, local_extents=(inner, *plan.local_extents))
    assert emit(models.facts(path), more, tmp_path) == emit(models.facts(path), plan, tmp_path)


def test_extents_of_a_product_on_a_line_that_joins_heads_are_not_taken_for_those_written(
    tmp_path: Path,
) -> None:
    text = models.SOURCE.replace("y.transpose(1, 2).reshape(", "(y @ y.mT @ v).mT.reshape(")
    path = write(tmp_path, text)
    plan = models.plan(str(path))
    *others, joined = plan.local_extents
    inner = LocalExtent(str(path), joined.line, "reshape", "", (8, 4, 4), (4, 4, 4))
    for extents in ((inner, joined), (joined,)):
        more = replace(plan, local_extents=(*others, *extents))
        new = emit(models.facts(path), more, tmp_path).diff
        assert ".reshape(b, t, -1))" in new


def test_a_line_without_a_split_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    extra = LocalExtent(str(path), models.line_of("b, t, c = x"), "split", "", (8,), (4,))
    plan = replace(models.plan(str(path)), local_extents=(extra,))
    with pytest.raises(EmitError, match="no split is found"):
        emit(models.facts(path), plan, tmp_path)


def test_extents_inside_an_operation_need_no_edit(tmp_path: Path) -> None:
    path = write(tmp_path)
    inner = LocalExtent(str(path), models.line_of(".split("), "reshape", "", (8, 24), (8, 12))
    plan = models.plan(str(path))
    more = replace(plan, local_extents=(*plan.local_extents, inner))
    assert emit(models.facts(path), more, tmp_path) == emit(models.facts(path), plan, tmp_path)


def test_a_shape_given_by_name_is_edited_where_it_is_made(tmp_path: Path) -> None:
    text = models.SOURCE.replace(
        "b, t, c = x.size()",
        "shape = (*x.shape[:2], self.heads, self.n // self.heads); b, t, c = x.size()",
    )
    text = text.replace("view(b, t, self.heads, c // self.heads)", "view(shape)")
    path = write(tmp_path, text)
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert "shape = (*x.shape[:2], -1, self.n // self.heads)" in new
    assert new.count("view(shape)") == 3


def test_equal_shapes_on_one_line_are_all_edited(tmp_path: Path) -> None:
    line = "q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)"
    text = models.SOURCE.replace(line, line + "; z = x.view(b, t, self.heads, c // self.heads)")
    path = write(tmp_path, text)
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert new.count("view(b, t, -1, c // self.heads)") == 4


def test_a_place_that_capture_merged_away_is_edited_like_its_twins(tmp_path: Path) -> None:
    path = write(tmp_path)
    plan = models.plan(str(path))
    few = tuple(e for e in plan.local_extents if e.line != models.line_of("v = v.view("))
    assert len(few) == 4
    patch = emit(models.facts(path), replace(plan, local_extents=few), tmp_path)
    assert patch == emit(models.facts(path), plan, tmp_path)


def test_an_extent_read_from_a_tensor_stays(tmp_path: Path) -> None:
    path = write(
        tmp_path, models.SOURCE.replace("reshape(b, t, c)", "reshape(-1, t, y.size(1) * 2)")
    )
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert "reshape(-1, t, y.size(1) * 2)" in new


def test_an_extent_in_a_file_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    extra = LocalExtent("/site/other.py", 3, "reshape", "", (8,), (4,))
    plan = replace(models.plan(str(path)), local_extents=(extra,))
    with pytest.raises(EmitError, match=r"/site/other.py:3: .*only files in .* are patched"):
        emit(models.facts(path), plan, tmp_path)


def test_a_parameter_that_tp_does_not_divide_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path)
    with pytest.raises(EmitError, match=r"qkv.weight: dim 0 of \[24, 8\] is not divisible by 48"):
        emit(models.facts(path), models.plan(str(path), tp=16), tmp_path)


def test_a_second_parallelize_gets_the_class_in_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, models.SOURCE + "\n\ndef parallelize():\n    pass\n")
    patch = emit(models.facts(path), models.plan(str(path)), tmp_path)
    assert "def parallelize_attention(" in patch.files["block.py"][1]
    assert "model = parallelize_attention(model)" in patch.entry


def test_a_file_that_is_not_python_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "def f(:\n")
    with pytest.raises(EmitError, match=r"block\.py:1: not Python"):
        emit(models.facts(path), models.plan(str(path)), tmp_path)


def test_fsdp_shards_the_columns_of_a_fused_linear(tmp_path: Path) -> None:
    path = write(tmp_path)
    mesh = type(models.plan(str(path)).mesh).of(dp=2, tp=2)
    plan = replace(models.plan(str(path)), mesh=mesh, dp="dp", data="fsdp")
    patch = emit(models.facts(path), plan, tmp_path)
    call = "shard_placement_fn=dp_shard(2)"
    assert call in patch.files["block.py"][1]
    assert any("equal part of the batch" in o for o in patch.obligations)


@pytest.mark.parametrize(("sizes", "told"), [({"dp": 3, "tp": 2}, 0), ({"tp": 2, "dp": 3}, 1)])
def test_whole_parameters_are_placed_as_fully_shard_places(
    tmp_path: Path, sizes: dict[str, int], told: int
) -> None:
    path = write(tmp_path)
    plan = models.plan(str(path))
    whole = {f"{m.path}.weight": {"tp": "S(0)"} for m in plan.modules}
    more = {"mesh": type(plan.mesh).of(**sizes), "dp": "dp", "data": "fsdp", "params": whole}
    patch = emit(models.facts(path), replace(plan, **more), tmp_path)
    new = patch.files["block.py"][1]
    assert new.index("whole_params(model, mesh)") < new.index("parallelize_module(model, tp")
    assert 'whole_over(model, mesh, "dp", "avg", originals)' in new
    assert sum("with dp before tp" in o for o in patch.obligations) == told


@pytest.mark.parametrize("output", ["tensor", ""])
def test_fsdp_shards_each_block_that_is_called(tmp_path: Path, output: str) -> None:
    path = write(tmp_path)
    given = models.facts(path)
    blocks = tuple(ModuleFact(f"blocks.{i}", "Block", "Block", output=output) for i in range(2))
    facts = replace(given, modules=(*given.modules, *blocks))
    plan = replace(
        models.plan(str(path)),
        mesh=Mesh.of(dp=2), tp=None, dp="dp", data="fsdp", modules=(),
        params={"blocks.*.fc.weight": {"dp": "S(0)"}, "out.weight": {"dp": "S(0)"}},
    )  # fmt: skip
    text = emit(facts, plan, tmp_path).files["block.py"][1]
    assert ("for block in model.blocks:" in text) == bool(output)
    assert 'fully_shard(model, mesh=mesh["dp"])' in text


def test_an_attribute_is_changed_where_a_line_has_its_minus_one_already(tmp_path: Path) -> None:
    text = models.SOURCE.replace("self.heads, c // self.heads)", "self.heads, -1)")
    path = write(tmp_path, text)
    given = models.facts(path)
    root = replace(given.modules[0], ints={"heads": 4, "n": 8})
    facts = replace(given, modules=(root, *given.modules[1:]))
    new = emit(facts, models.plan(str(path)), tmp_path).files["block.py"][1]
    assert new.count("view(b, t, self.heads, -1)") == 3
    assert "    model.heads //= tp.size()\n" in new


def test_an_extent_that_no_attribute_holds_is_one_error_with_its_line(tmp_path: Path) -> None:
    text = models.SOURCE.replace("self.heads, c // self.heads)", "4, -1)")
    path = write(tmp_path, text)
    with pytest.raises(EmitError, match=r"block.py:\d+: reshape .* another extent is -1 already"):
        emit(models.facts(path), models.plan(str(path)), tmp_path)


def test_layers_are_indexed_in_paths() -> None:
    held = ModuleFact("layers", "ModuleDict", "ModuleDict", {}, {}, (), 0, "", (), 2)
    facts = ModelFacts("model.py:M", "M", {}, modules=(held,))
    assert facts.code("model.layers.11.attn") == ".model.layers[11].attn"
    assert facts.code("layers.1.mlp") == '.layers["1"].mlp'
    assert facts.each_block("layers") == "    for block in model.layers.values():"
    assert (facts.code("block1.fc2"), facts.code("")) == (".block1.fc2", "")


@pytest.mark.parametrize("ends", ["()", "[]"])
def test_a_generator_over_lines_is_edited_where_its_assignment_begins(
    ends: str, tmp_path: Path
) -> None:
    one = "(z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))"
    lines = [
        f"        {x} = {x}.view(b, t, self.heads, c // self.heads).transpose(1, 2)" for x in "qkv"
    ]
    loop = f"        q, k, v = {ends[0]}\n            {one[1:-1]}\n        {ends[1]}"
    text = models.SOURCE.replace("\n".join(lines), loop)
    at = next(
        i for i, line in enumerate(text.split("\n"), 1) if line == f"        q, k, v = {ends[0]}"
    )
    path = write(tmp_path, text)
    plan = models.plan(str(path))
    moved = tuple(
        replace(e, line=at) if len(e.whole) == 4 else replace(e, line=e.line)
        for e in plan.local_extents
    )
    new = emit(models.facts(path), replace(plan, local_extents=moved), tmp_path).files["block.py"][
        1
    ]
    assert "z.view(b, t, -1, c // self.heads).transpose(1, 2)" in new


def test_a_minus_one_before_heads_that_size_others_becomes_the_operands_extent(
    tmp_path: Path,
) -> None:
    """With fewer heads the size of one, which is computed of their number, would be another."""
    path = write(tmp_path, models.SOURCE.replace("view(b, t,", "view(b, -1,"))
    new = emit(models.facts(path), models.plan(str(path)), tmp_path).files["block.py"][1]
    assert "q = q.view(b, q.size(1), -1, c // self.heads)" in new
    assert "heads //=" not in new


@pytest.mark.parametrize(
    ("before", "written"),
    [
        ((2, 3, 4, 8, 8), "y = y.view(-1, y.size(-3), n, n)"),
        ((6, 4, 4, 8, 8), "y = y.view(-1, y.size(-3), n, n)"),
        ((3, 4, 2, 8, 8), None),
        ((3, 8, 8, 8), None),
        ((), None),
    ],
)
def test_an_extent_before_those_that_stay_is_the_operands(
    before: tuple[int, ...], written: str | None
) -> None:
    """Only where the operand is known to end in the same extents."""
    source = SourceText("m.py", "y = y.view(-1, self.heads, n, n)")
    extent = LocalExtent("m.py", 1, "reshape", "attn", (6, 4, 8, 8), (6, 2, 8, 8), before)
    if written is not None:
        assert source.apply(edit_extents(source, [extent])) == written
        return
    with pytest.raises(EmitError, match="cannot become -1"):
        edit_extents(source, [extent])


def test_an_attribute_is_changed_where_a_line_calls_what_reads_it(tmp_path: Path) -> None:
    """Capture names the line of forward alone."""
    line = "q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)"
    text = models.SOURCE.replace(line, "q = self.apart(q)")
    text += (
        "\n    def apart(self, q):\n        return q.view(2, 4, self.heads, -1).transpose(1, 2)\n"
    )
    path = write(tmp_path, text)
    given = models.facts(path)
    root = replace(given.modules[0], ints={"heads": 4, "n": 8})
    facts = replace(given, modules=(root, *given.modules[1:]))
    at = text.split("\n").index("        q = self.apart(q)") + 1
    extent = LocalExtent(str(path), at, "reshape", "", (2, 4, 4, 2), (2, 4, 2, 2))
    plan = replace(models.plan(str(path)), local_extents=(extent,))
    new = emit(facts, plan, tmp_path).files["block.py"][1]
    assert "    model.heads //= tp.size()\n" in new


@pytest.mark.parametrize("shared", [["weight"], ["weight", "bias"]])
def test_modules_that_share_all_their_parameters_are_split_alike(
    tmp_path: Path, shared: list[str]
) -> None:
    path = write(tmp_path)
    facts = models.facts(path)
    again = replace(facts.modules[-1], path="again")
    tied = tuple((f"out.{name}", f"again.{name}") for name in shared)
    facts = replace(facts, modules=(*facts.modules, again), tied=tied)
    if len(shared) < len(again.params):
        with pytest.raises(EmitError, match="split in different ways"):
            emit(facts, models.plan(str(path)), tmp_path)
        return
    diff = emit(facts, models.plan(str(path)), tmp_path).diff
    assert '"again": RowwiseParallel(' in diff
    assert "model.again.bias = model.out.bias" in diff
