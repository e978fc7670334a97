"""What is kept on disk is found whole or not at all, and holds data alone."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.steps.examples import preconditions
from benchmarks.steps.model import Degrees
from benchmarks.steps.strategies import Strategy
from synthesis.repair.diagnosis import verify
from verifier.problem import Problem
from verifier.reuse import Base, proved_again
from verifier.reuse.reading import reread
from verifier.reuse.store import Kept, Store
from verifier.text.parser import Spans, parse_text, to_text


@cache
def kept() -> Kept:
    degrees = Degrees(tp=2, micro_batches=2, scan_layers=True, scan_micro_batches=True)
    step = Strategy("step", degrees).step()
    text, spans, found = to_text(step.distributed), Spans(), list[Base]()
    program = parse_text(text, "d.txt", spans)
    verify(
        Problem(step.sequential, program, step.contract, consts=preconditions(step)), remember=found
    )
    return Kept(found[0], b"s", b"c", text, spans, 7)


def test_what_was_kept_comes_back_and_proves(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.kept(b"s", b"c") is None
    store.keep(kept())
    found = store.kept(b"s", b"c")
    assert found is not None
    again, name = found
    assert (again.claims, again.text) == (7, kept().text)
    assert (tmp_path / "objects" / name).is_file()
    lines = again.text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if " = mul " in line and "%x" not in line)
    head, _, rest = lines[at].partition(" = mul ")
    operands, _, tail = rest.partition(" :")
    a, b = operands.split(", ")
    lines[at] = f"{head} = mul {b}, {a} :{tail}"
    edited = reread("".join(lines), again.text, again.base.written, again.spans)
    assert edited is not None
    proof = proved_again(again.base, edited)
    assert proof is not None
    assert proof.scope == kept().base.scope


def test_other_bytes_or_another_verifier_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.keep(kept())
    assert store.kept(b"s", b"c") is not None
    assert store.kept(b"s", b"d") is None
    assert store.kept(b"sc", b"") is None
    monkeypatch.setattr("verifier.reuse.store.version", lambda: "another")
    assert store.kept(b"s", b"c") is None


def test_a_damaged_object_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(kept())
    (path,) = (tmp_path / "objects").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert store.kept(b"s", b"c") is None
    path.unlink()
    assert store.kept(b"s", b"c") is None
    (entry,) = (tmp_path / "entries").iterdir()
    entry.write_text('{"object": ')
    assert store.kept(b"s", b"c") is None


def test_an_entry_is_believed_with_the_object_that_is_about_its_files_alone(tmp_path: Path) -> None:
    """Entries are forged: of no object, of a path, and of the proof of other files."""
    store = Store(tmp_path)
    store.keep(kept())
    (path,) = (tmp_path / "objects").iterdir()
    other = tmp_path / "entries" / f"{store.key(b'other', b'c')}.json"
    for name in (path.name, "0" * 64, "../objects/" + path.name, 7, None):
        other.write_text(json.dumps({"object": name, "distributed": "0" * 64, "claims": 1}))
        assert store.kept(b"other", b"c") is None
    assert store.kept(b"s", b"c") is not None


class _Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("thing", [_Runs(), Path(), hashlib.sha256])
def test_nothing_but_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: object
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path)
    store.keep(kept())
    data = pickle.dumps(thing)
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / "objects" / name).write_bytes(data)
    (entry,) = (tmp_path / "entries").iterdir()
    entry.write_text(json.dumps({"object": name}))
    assert store.kept(b"s", b"c") is None
    assert not (tmp_path / "ran").exists()


def _write_for_ever(directory: Path, number: int) -> None:
    store, mine = Store(directory), kept()
    texts = [f"{mine.text}# {number} {n}\n" for n in range(3)]
    n = 0
    while True:
        store.keep(replace(mine, text=texts[n % 3], claims=n))
        n += 1


def test_writers_that_race_and_are_killed_leave_it_whole(tmp_path: Path) -> None:
    kept()
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=_write_for_ever, args=(tmp_path, n), daemon=True) for n in range(2)
    ]
    for writer in writers:
        writer.start()
    store, found = Store(tmp_path), 0
    end = time.monotonic() + 60
    while found < 12 and time.monotonic() < end:
        again = store.kept(b"s", b"c")
        if again is not None:
            found += 1
            assert again[0].text.startswith(kept().text)
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert found >= 12
    store.keep(replace(kept(), claims=99))
    again = store.kept(b"s", b"c")
    assert again is not None
    assert again[0].claims == 99
