"""What a file is imported as, from where, and which files are the owner's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardproof.synthesis.emit.patch import patch
from shardproof.synthesis.execute.job import patched_folder, place_of
from shardproof.synthesis.frontends.torch import homes
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.homes import Moved, home_of, patched_from, ways
from shardproof.synthesis.frontends.torch.process import DROPPED, owners
from shardproof.synthesis.frontends.torch.request import CaptureRequest, resolved


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the module `top.low.model`, which is the working directory."""
    (tmp_path / "top" / "low").mkdir(parents=True)
    for name in ("top/__init__.py", "top/low/__init__.py", "top/low/model.py", "plain.py"):
        (tmp_path / name).write_text("X = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path.resolve()


def test_a_file_is_a_member_of_its_topmost_package(package: Path) -> None:
    home = home_of("top/low/model.py")
    assert (home.base, home.name, home.packaged) == (package, "top.low.model", True)
    assert home_of("top/low/__init__.py").name == "top.low"
    plain = home_of("plain.py")
    assert (plain.base, plain.name, plain.packaged) == (package, "plain", False)


def test_a_folder_that_python_cannot_name_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    for name in ("__init__.py", "net.py"):
        (tmp_path / "my-model" / name).touch()
    assert home_of(tmp_path / "my-model" / "net.py").name == "net"


def test_paths_of_a_patch_are_relative_to_what_holds_the_package(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert patched_from("top/low/model.py") == package
    monkeypatch.chdir(package / "top")
    assert patched_from("low/model.py") == package


def test_folders_of_pythonpath_come_after_the_working_directory(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("top", "/elsewhere")))
    first, last = ways(home_of("top/low/model.py"))
    assert first == (str(package), str(package / "top"), "/elsewhere")
    assert last == (str(package / "top" / "low"),)
    first, _ = ways(home_of("top/low/model.py"), Moved(package, Path("/copy")))
    assert first == (str(package), "/copy", "/copy/top", "/elsewhere")


def test_a_module_is_found_by_its_name(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved("top.low.model:Net") == "top/low/model.py:Net"
    assert resolved("top.low:Net") == "top/low/__init__.py:Net"
    assert resolved("plain.py:Net") == "plain.py:Net"
    assert resolved("hf:LlamaForCausalLM") == "hf:LlamaForCausalLM"
    with pytest.raises(CaptureError, match=r"low.model is not a Python file, nor a module in"):
        resolved("low.model:Net")
    monkeypatch.setenv("PYTHONPATH", "top")
    assert resolved("low.model:Net") == "top/low/model.py:Net"


def test_libraries_python_and_shardproof_are_not_the_owners(package: Path) -> None:
    model = str(package / "top" / "low" / "model.py")
    assert homes.own(str(package), model)
    assert not homes.own("", model)
    assert not homes.own("/", f"{package}/.venv/lib/site-packages/torch/nn.py")
    assert not homes.own("/", os.__file__)
    assert not homes.own("/", homes.__file__)
    assert not homes.own(str(package), "<string>")


def test_the_code_is_given_what_is_named_and_told_what_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WIDTH", "8")
    monkeypatch.setenv("TOKEN", "secret")
    given = owners(("WIDTH", "DEPTH=2"))
    assert (given["WIDTH"], given["DEPTH"]) == ("8", "2")
    assert "TOKEN" in given[DROPPED].split()
    assert "WIDTH" not in given[DROPPED].split()
    assert "secret" not in given.values()
    with pytest.raises(CaptureError, match="NOT_THERE is not set"):
        owners(("NOT_THERE",))


def test_a_patched_tree_holds_links_to_all_else(package: Path) -> None:
    for name in (".git", "__pycache__", "top/data", "top/low/__pycache__"):
        (package / name).mkdir()
    (package / "top" / "data" / "table.txt").write_text("1")
    made = patch({"top/low/model.py": ("X = 1\n", "X = 2\n")}, (), "")
    request = CaptureRequest("top/low/model.py:Net")
    assert place_of(request, made) == ("top/low/model.py", package)
    with patched_folder(made, package) as folder:
        tree = folder / "tree"
        assert (tree / "top/low/model.py").read_text() == "X = 2\n"
        assert (tree / "top/low/__init__.py").is_symlink()
        assert (tree / "top/data/table.txt").read_text() == "1"
        assert (tree / "plain.py").is_symlink()
        assert not (tree / ".git").is_symlink()
        assert not list(tree.rglob("__pycache__"))
        assert home_of(tree / "top/low/model.py").name == "top.low.model"
    assert (package / "top/data/table.txt").exists()
    assert (package / "top/low/model.py").read_text() == "X = 1\n"
    assert "top" not in sys.modules


def test_code_beside_packages_that_pip_installed_is_the_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "lib-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("../bin/lib,,\nlib/__init__.py,,\nsingle.py,,\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(homes, "_installed", homes._installed.__wrapped__)
    files = ("lib/a.py", "single.py", "model.py")
    named = {n: homes.is_users(str(tmp_path / n)) for n in files}
    assert named == {"lib/a.py": False, "single.py": False, "model.py": True}
