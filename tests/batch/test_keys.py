"""What a model's hash covers: files that it imports, in packages with and without `__init__.py`."""

from __future__ import annotations

from pathlib import Path

from shardproof.agent.batch.keys import closure


def test_files_of_packages_without_an_init_are_followed(tmp_path: Path) -> None:
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "layers.py").write_text("from lib.deep import more\n")
    (tmp_path / "lib" / "deep" / "more.py").write_text("X = 1\n")
    (tmp_path / "model.py").write_text("from lib.layers import more\nimport not_there\n")
    found = {Path(p).relative_to(tmp_path) for p in closure(tmp_path / "model.py")}
    assert found == {Path("model.py"), Path("lib/layers.py"), Path("lib/deep/more.py")}
    before = closure(tmp_path / "model.py")
    (tmp_path / "lib" / "deep" / "more.py").write_text("X = 2\n")
    assert closure(tmp_path / "model.py") != before
