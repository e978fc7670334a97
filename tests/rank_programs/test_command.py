"""`shardproof verify-ranks`: exit codes, what is named, and what is said of bad input."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from shardproof.agent.cli.main import main
from shardproof.verifier.text.parser import to_text
from tests.rank_programs.samples import DISTRIBUTED, SEQUENTIAL, contract, edit, file, written
from tests.rank_programs.writing import write_ranks


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    (tmp_path / "one.txt").write_text(to_text(SEQUENTIAL), "utf-8")
    (tmp_path / "contract.json").write_text(json.dumps(contract().to_json()), "utf-8")
    return ["--sequential", f"{tmp_path}/one.txt", "--contract", f"{tmp_path}/contract.json"]


def _run(monkeypatch: pytest.MonkeyPatch, path: Path, given: list[str]) -> int:
    monkeypatch.setattr("sys.argv", ["shardproof", "verify-ranks", str(path), *given])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("kind", ["ranks", "ranks.spz", "ranks.tar", "ranks.tar.gz"])
def test_every_container_is_proved(
    tmp_path: Path, given: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / kind
    if ".tar" in kind:
        with tarfile.open(path, "w:gz" if kind.endswith("gz") else "w") as archive:
            archive.add(written(tmp_path / "folder"), "plan")
    else:
        write_ranks(DISTRIBUTED, path)
    assert _run(monkeypatch, path, given) == 0


def test_a_rank_that_is_wrong_is_refuted_with_its_place(
    tmp_path: Path,
    given: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = edit(written(tmp_path / "ranks"), 6, r"offset=8", "offset=9")
    assert _run(monkeypatch, tmp_path / "ranks", [*given, "--json"]) == 1
    seen = [json.loads(shown) for shown in capsys.readouterr().out.splitlines()]
    (told,) = [e for e in seen if e["event"] == "verdict"]
    assert told["verdict"] == "refuted"
    assert f"rank-00006.sp:{line}" in told["where"]
    assert "rank 6 (pp=0, dp=1, tp=2)" in told["message"]


@pytest.mark.parametrize("what", ["a rank", "the end", "the mesh", "the set", "the contract"])
def test_what_cannot_be_read_ends_in_2_and_is_named(
    tmp_path: Path,
    given: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
) -> None:
    folder = written(tmp_path / "ranks")
    said = {
        "a rank": "rank 9 is missing",
        "the end": "rank-00009.sp",
        "the mesh": "multiply out",
        "the set": "none",
        "the contract": "contract.json",
    }[what]
    if what == "a rank":
        file(folder, 9).unlink()
    elif what == "the end":
        file(folder, 9).write_bytes(file(folder, 9).read_bytes()[:-20])
    elif what == "the mesh":
        (folder / "mesh.sp").write_text("ranks 32 of l mesh(a=4, b=4)\n", "utf-8")
    elif what == "the set":
        folder = tmp_path / "none"
    else:
        (tmp_path / "contract.json").write_text("{", "utf-8")
    assert _run(monkeypatch, folder, given) == 2
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert "Traceback" not in captured.err
