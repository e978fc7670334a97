"""What is kept on disk is found whole or not at all, and holds data alone."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from synthesis.training.model import Degrees
from synthesis.training.strategies import Strategy
from verifier.incremental import Base, proved_again
from verifier.incremental.reading import reread
from verifier.incremental.store import Kept, Store
from verifier.ir.text import Spans, parse_text, to_text
from verifier.verify import verify


@cache
def kept() -> Kept:
    degrees = Degrees(tp=2, micro_batches=2, scan_layers=True, scan_micro_batches=True)
    step = Strategy("step", degrees).step()
    text, spans, found = to_text(step.distributed), Spans(), list[Base]()
    program = parse_text(text, "d.txt", spans)
    verify(step.sequential, program, step.contract, consts=step.preconditions, remember=found)
    return Kept(found[0], text, spans)


def test_what_was_kept_comes_back_and_proves(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = store.key(b"s", b"c")
    assert store.entry(key) is None
    store.keep(key, kept(), 7)
    entry = store.entry(key)
    assert entry is not None
    assert entry.claims == 7
    again = store.kept(entry)
    assert again is not None
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
    assert proof.scope == tuple(entry.scope)


def test_other_bytes_or_another_verifier_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.keep(store.key(b"s", b"c"), kept(), 1)
    assert store.entry(store.key(b"s", b"d")) is None
    assert store.entry(store.key(b"sc", b"")) is None
    monkeypatch.setattr("verifier.incremental.store.version", lambda: "another")
    assert store.entry(store.key(b"s", b"c")) is None


def test_a_damaged_object_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = store.key(b"s", b"c")
    store.keep(key, kept(), 1)
    (path,) = (tmp_path / "objects").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    entry = store.entry(key)
    assert entry is not None
    assert store.kept(entry) is None
    path.unlink()
    assert store.kept(entry) is None
    (tmp_path / "entries" / f"{key}.json").write_text('{"object": ')
    assert store.entry(key) is None


class _Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("thing", [_Runs(), Path(), hashlib.sha256])
def test_nothing_but_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: object
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path)
    key = store.key(b"s", b"c")
    store.keep(key, kept(), 1)
    entry = store.entry(key)
    assert entry is not None
    data = pickle.dumps(thing)
    name = hashlib.sha256(data).hexdigest()
    (tmp_path / "objects" / name).write_bytes(data)
    assert store.kept(replace(entry, object=name)) is None
    assert not (tmp_path / "ran").exists()


def _write_for_ever(directory: Path, number: int) -> None:
    store, mine = Store(directory), kept()
    texts = [f"{mine.text}# {number} {n}\n" for n in range(3)]
    n = 0
    while True:
        store.keep(store.key(b"s", b"c"), replace(mine, text=texts[n % 3]), n)
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
    key = store.key(b"s", b"c")
    end = time.monotonic() + 60
    while found < 12 and time.monotonic() < end:
        entry = store.entry(key)
        again = store.kept(entry) if entry is not None else None
        if again is not None and entry is not None:
            found += 1
            assert hashlib.sha256(again.text.encode()).hexdigest() == entry.distributed
    for writer in writers:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    assert found >= 12
    store.keep(key, kept(), 99)
    entry = store.entry(key)
    assert entry is not None
    assert entry.claims == 99
    assert store.kept(entry) is not None
