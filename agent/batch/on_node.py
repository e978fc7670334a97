"""What a node of a Ray cluster does for a batch: runs a job's process, gives back what it wrote."""

import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardproof.agent.batch import keys
from shardproof.agent.batch.pool import Ended, Task, captured
from shardproof.agent.batch.processes import Processes
from shardproof.agent.batch.wire import At, Commission, Over
from shardproof.agent.batch.worker import PLACE


def perform(
    asked: Commission, folder: str, ours: Mapping[str, str], board: Any, model: bytes | None
) -> tuple[Over, bytes]:
    """Run one job. `ours` is what the batch is a version of, `model` the captured model, if another
    job captured it. Gives how it ended, and its out-directory as a tar archive.
    """
    if keys.ours() != ours:
        why = f"{os.uname().nodename} has another version of shardproof or of a library it uses"
        return Over(name=asked.name, code=1, stopped=why), b""
    try:
        os.chdir(folder)
    except OSError as error:
        why = f"the folder of the batch is not on {os.uname().nodename}: {error}"
        return Over(name=asked.name, code=1, stopped=why), b""
    board.say.remote(At(name=asked.name, phase="").model_dump_json(), begun=True)
    with tempfile.TemporaryDirectory(prefix="shardproof-") as place:
        shelf, out = Path(place) / "models", Path(place) / "out" / asked.name
        shelf.mkdir()
        if model is not None:
            (shelf / asked.model).write_bytes(model)
        task = Task(asked.name, asked.order, asked.model, asked.timeout)
        ended = _run(task, asked.words, place, board, shelf / asked.model)
        said = Over(
            name=asked.name,
            code=ended.code,
            seconds=ended.seconds,
            events=tuple(e.model_dump_json() for e in ended.events),
            words=ended.words,
            stopped=ended.stopped,
        )
        return said, _packed(out)


def _run(task: Task, words: Sequence[str], place: str, board: Any, model: Path) -> Ended:
    """Start the process and say how far it is. A model it captured is kept for other jobs."""
    started = Processes(lambda _: [sys.executable, *words], environment={PLACE: place})
    kept = model.is_file() or not task.model
    started.begin(task)
    try:
        while True:
            for happening in started.watch():
                if isinstance(happening, Ended):
                    return happening
                if not kept and captured(happening[2]) and model.is_file():
                    board.keep.remote(task.model, model.read_bytes())
                    kept = True
                board.say.remote(At(name=task.name, phase=happening[2]).model_dump_json())
    finally:
        started.end_all()


def _packed(folder: Path) -> bytes:
    """A folder as a tar archive; nothing where there is none."""
    if not folder.is_dir():
        return b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, arcname=folder.name)
    return buffer.getvalue()
