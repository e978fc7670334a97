"""The process that speaks to Ray for a batch. Ray ends its driver where the cluster goes: that is
this process, and not the batch. When its stdin ends the batch is gone, and so is every job of it.

A job is a Ray task with its need of CPUs and memory. Ray runs it again, on another node where it
must, if its worker or node goes. A model that one job captured lies in the object store for others.
"""

import argparse
import contextlib
import importlib
import io
import os
import queue
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shardproof.agent.batch import keys, on_node
from shardproof.agent.batch.processes import GRACE_S, environment
from shardproof.agent.batch.wire import At, Commission, Hello, Lost, Over, Word

TICK_S = 0.2
TRIES = 3
"""How often a job is begun whose worker or node goes."""


def library() -> Any:
    """Ray, whose own types say little."""
    return importlib.import_module("ray")


class Board:
    """An actor: what jobs say, until it is read, and the models that they captured."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.models: dict[str, Any] = {}
        self.begun: dict[str, tuple[int, float]] = {}

    def say(self, word: str, *, begun: bool = False) -> None:
        if begun:
            name = At.model_validate_json(word).name
            self.begun[name] = (self.begun.get(name, (0, 0.0))[0] + 1, time.time())
        self.said.append(word)

    def keep(self, model: str, data: bytes) -> None:
        self.models.setdefault(model, library().put(data))

    def read(self) -> tuple[list[str], dict[str, Any], dict[str, tuple[int, float]]]:
        """What was said since, the models by name, and by job how often and when it was begun."""
        said, self.said = self.said, []
        return said, dict(self.models), dict(self.begun)


class Relay:
    """Tasks under way on the cluster."""

    def __init__(self, ray: Any, cpus: float, memory: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.ray = ray
        self.board = ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()
        needs: dict[str, Any] = {"num_cpus": cpus, **({"memory": memory} if memory else {})}
        self.perform = ray.remote(max_retries=TRIES - 1, **needs)(on_node.perform)
        self.jobs: dict[Any, Commission] = {}
        self.models: dict[str, Any] = {}
        self.begun: dict[str, tuple[int, float]] = {}

    def begin(self, asked: Commission) -> None:
        model = self.models.get(asked.model)
        here, ours = str(Path.cwd()), keys.ours()
        self.jobs[self.perform.remote(asked, here, ours, self.board, model)] = asked

    def watch(self) -> Iterable[Word]:
        """Wait a moment; what jobs said, and those that ended."""
        if not self.jobs:
            time.sleep(TICK_S)
            return
        ended, _ = self.ray.wait(list(self.jobs), num_returns=len(self.jobs), timeout=TICK_S)
        said, self.models, self.begun = self.ray.get(self.board.read.remote())
        running = {job.name for ref, job in self.jobs.items() if ref not in ended}
        for text in said:
            word = At.model_validate_json(text)
            if word.name in running:
                yield word
        for ref in ended:
            yield self._over(ref, self.jobs.pop(ref))
        for ref, job in self.jobs.items():
            times, since = self.begun.get(job.name, (0, 0.0))
            late = job.timeout is not None and time.time() - since > job.timeout + 3 * GRACE_S
            if times > TRIES or (times and late):
                self.ray.cancel(ref, force=True)

    def _over(self, ref: Any, job: Commission) -> Over:
        from ray import exceptions

        times, _ = self.begun.get(job.name, (0, 0.0))
        try:
            over, packed = self.ray.get(ref)
        except exceptions.TaskCancelledError:
            why = "timeout" if times <= TRIES else f"its worker was lost {times} times"
        except exceptions.RayTaskError as error:
            why = f"the job could not be run on its node: {error.cause}"
        except exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            why = f"its worker was lost {max(times, 1)} times: {first}"
        else:
            if packed:
                unpack(packed, Path(job.out))
            return over
        return Over(name=job.name, code=-9, stopped=why)


def unpack(packed: bytes, out: Path) -> None:
    """Put an out-directory in its place, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        (Path(place) / out.name).replace(out)


def connect(address: str | None, cpus: float, memory: int) -> tuple[Any, Hello]:
    """Join a cluster, or start one on this machine.

    Raises:
        ConnectionError: it cannot be reached, or none of its nodes is large enough for a job.
    """
    ray = library()
    where: dict[str, Any] = {"address": address} if address else {"include_dashboard": False}
    ray.init(
        **where,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": environment()["PYTHONPATH"]}},
    )
    found: list[dict[str, Any]] = ray.nodes()
    nodes: list[dict[str, float]] = [n["Resources"] for n in found if n["Alive"]]
    if not any(n.get("CPU", 0) >= cpus and n.get("memory", 0) >= memory for n in nodes):
        none: dict[str, float] = {}
        largest = max(nodes, key=lambda n: (n.get("CPU", 0), n.get("memory", 0)), default=none)
        raise ConnectionError(
            f"no node has {cpus:g} CPUs and {memory / 1e9:.1f} GB for a job; the largest has "
            f"{largest.get('CPU', 0):g} and {largest.get('memory', 0) / 1e9:.1f} GB"
        )
    return ray, Hello(cpus=int(sum(n.get("CPU", 0) / cpus for n in nodes)), nodes=len(nodes))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address")
    parser.add_argument("--cpus", type=float, required=True)
    parser.add_argument("--memory", type=int, required=True)
    asked = parser.parse_args()
    words = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever Ray prints is no word of ours

    def say(word: Word) -> None:
        words.write(word.model_dump_json() + "\n")

    commissions: queue.SimpleQueue[Commission] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            commissions.put(Commission.model_validate_json(line))
        os._exit(0)

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray, hello = connect(asked.address, asked.cpus, asked.memory)
        relay = Relay(ray, asked.cpus, asked.memory)
    except (OSError, RuntimeError, ValueError) as error:
        say(Lost(why=str(error).strip().split("\n")[0]))
        return 1
    say(hello)
    threading.Thread(target=listen, daemon=True).start()
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                relay.begin(commissions.get_nowait())
        try:
            for word in relay.watch():
                say(word)
        except (ray.exceptions.RayError, OSError) as error:
            say(Lost(why=str(error).strip().split("\n")[0]))
            return 1


if __name__ == "__main__":
    sys.exit(main())
