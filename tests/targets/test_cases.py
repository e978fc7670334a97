"""Models as people have them, code in several files among it, are proved and run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.commands import COMMAND, environment

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

CASES = Path(__file__).parent / "cases"
TARGETS = {
    "pkg/relative.py:Net": ("pkg/relative.py",),
    "pkg.absolute:Net": ("pkg/absolute.py",),
    "pkg/heads.py:Net": ("pkg/attention.py", "pkg/heads.py"),
    "sibling.py:Net": ("sibling.py",),
    "folder.py:Net": ("folder.py",),
    "two_files_heads.py:Net": ("heads_parts.py", "two_files_heads.py"),
    "needs_path.py:Net": ("needs_path.py",),
    "none_in_list.py:Net": ("none_in_list.py",),
    "buffer_device.py:Net": ("buffer_device.py",),
    "transposed_output.py:Both": ("transposed_output.py",),
    "own_mask.py:Net": ("own_mask.py",),
    "joined_streams.py:Net": ("joined_streams.py",),
    "depthwise_tokens.py:Net": ("depthwise_tokens.py",),
    "sparse_buffer.py:Net": ("sparse_buffer.py",),
    "label_dropout.py:Net": ("label_dropout.py",),
    "relative_table.py:Net": ("relative_table.py",),
    "wants_gradient.py:Net": ("wants_gradient.py",),
    "mixed_tokens.py:Net": ("mixed_tokens.py",),
    "bare_config.py:Net": ("bare_config.py",),
    "built_elsewhere.py:small": ("built_elsewhere.py",),
    "flat_logits.py:Net": ("flat_logits.py",),
    "root_sequential.py:stacked": ("root_sequential.py",),
    "bias_table.py:Net": ("bias_table.py",),
    "made_state.py:Net": ("made_state.py",),
    "nested_inputs.py:Net": ("nested_inputs.py",),
    "split_method.py:Net": ("split_method.py",),
    "written_after_dropout.py:Net": ("written_after_dropout.py",),
}
"""Targets, with the files that their patches change."""


def done(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = environment()
    paths = (*filter(None, [env.get("PYTHONPATH")]), str(CASES / "elsewhere"))
    env["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.run([*COMMAND, *words], cwd=folder, env=env, capture_output=True, text=True)


WITH_DATA_PARALLELISM = ("flat_logits.py:Net", "nested_inputs.py:Net")


@pytest.mark.parametrize(
    ("target", "mesh"),
    [(t, "tp=2") for t in TARGETS] + [(t, "dp=2,tp=2") for t in WITH_DATA_PARALLELISM],
)
def test_a_model_is_split_proved_and_run(tmp_path: Path, target: str, mesh: str) -> None:
    out = tmp_path / "out"
    words = ("parallelize", target, "--mesh", mesh, "--run", "--out", str(out))
    ran = done(CASES, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "agrees" in ran.stdout + ran.stderr
    diff = (out / "patch.diff").read_text()
    found = [
        line.split()[-1].removeprefix("b/") for line in diff.splitlines() if line[:5] == "diff "
    ]
    assert tuple(found) == TARGETS[target]
    assert "RowwiseParallel" in diff


def test_gradients_of_whole_tables_are_summed_under_fully_shard(tmp_path: Path) -> None:
    words = ("parallelize", "relative_table.py:Net", "--mesh", "dp=2,tp=2", "--run")
    ran = done(CASES, *words, "--out", str(tmp_path / "out"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    diff = (tmp_path / "out" / "patch.diff").read_text()
    assert "summed_over(model.attention.positions, tp)" in diff
    assert "RowwiseParallel" in diff


def test_whole_tables_and_convolutions_over_patches_are_split(tmp_path: Path) -> None:
    for target, line in {
        "relative_table.py:Net": "summed_over(model.attention.positions, tp)",
        "mixed_tokens.py:Net": '"patches.up": ChannelParallel({"weight": 0, "bias": 0}, output_',
    }.items():
        out = tmp_path / target.partition(".")[0]
        words = ("parallelize", target, "--mesh", "tp=2", "--no-run", "--out", str(out))
        ran = done(CASES, *words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert line in (out / "patch.diff").read_text()


def test_compiled_code_is_followed_as_it_is_written(tmp_path: Path) -> None:
    for name in ("Net", "InPlace"):
        out = tmp_path / name
        words = ("parallelize", f"compiled.py:{name}", "--mesh", "tp=2", "--no-run")
        ran = done(CASES, *words, "--out", str(out))
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert (
            "What torch.compile makes computes what the code computes." in ran.stdout + ran.stderr
        )
        assert "RowwiseParallel" in (out / "patch.diff").read_text()


def test_reshapes_of_different_lines_are_local_on_a_mesh_with_dp(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("parallelize", "grouped.py:Net", "--mesh", "dp=2,tp=2", "--no-run", "--out", str(out))
    ran = done(CASES, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    diff = (out / "patch.diff").read_text()
    assert "RowwiseParallel" in diff
    assert "fully_shard" in diff
    assert "expand(b, t, -1, 2, 8)" in diff


def test_ranks_that_split_the_batch_draw_numbers_of_their_own(tmp_path: Path) -> None:
    words = ("--mesh", "dp=2", "--run", "--out", str(tmp_path / "out"))
    ran = done(CASES, "parallelize", "label_dropout.py:Net", *words)
    said = " ".join((ran.stdout + ran.stderr).split())
    assert ran.returncode == 0, said
    assert "ranks along dp draw their own (different random states)" in said
    assert "the patch was not run: its dp ranks draw random numbers of their own" in said


def test_a_patch_of_two_files_is_applied_and_proved_again(tmp_path: Path) -> None:
    for name in ("two_files_heads.py", "heads_parts.py"):
        (tmp_path / name).write_text((CASES / name).read_text())
    target = "two_files_heads.py:Net"
    made = done(tmp_path, "parallelize", target, "--mesh", "tp=2", "--no-run", "--out", "out")
    assert made.returncode == 0, made.stdout + made.stderr
    again = done(tmp_path, "verify", "out", "--recapture")
    assert again.returncode == 0, again.stdout + again.stderr
    applied = done(tmp_path, "apply", "out", "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "view(b, t, -1, self.size)" in (tmp_path / "heads_parts.py").read_text()
    assert "def parallelize(" in (tmp_path / "two_files_heads.py").read_text()


def test_a_second_file_that_changes_in_between_is_refused(tmp_path: Path) -> None:
    for name in ("two_files_heads.py", "heads_parts.py"):
        (tmp_path / name).write_text((CASES / name).read_text())
    target = "two_files_heads.py:Net"
    made = done(tmp_path, "parallelize", target, "--mesh", "tp=2", "--no-run", "--out", "out")
    assert made.returncode == 0, made.stdout + made.stderr
    second = tmp_path / "heads_parts.py"
    second.write_text(second.read_text() + "\nX = 1\n")
    again = done(tmp_path, "apply", "out", "--yes")
    assert again.returncode != 0
    assert "heads_parts.py" in again.stdout + again.stderr
