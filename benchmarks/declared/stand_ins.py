# ruff: noqa: E501
"""What of PyTorch is replaced while code is traced, or answers in another's place: each once, with
what it differs in and what compares it with the real thing.

A run that confirms a verdict has none of these, dropout aside (`synthesis/execute/run/rank.py`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StandIn:
    """One replaced function or class of PyTorch."""

    real: str
    """What it stands for."""
    where: str
    """`file:function` below `synthesis`, which puts it there."""
    active: str
    """When."""
    differs: str
    """In what it differs from the real one; what is not covered there is refused."""
    compared: str
    """The test that compares it with the real thing, or shows that it refuses."""


STAND_INS = (
    StandIn(
        "process groups",
        "frontends/torch/ranks/build.py:join_world",
        "ranks are traced",
        "Nothing is sent: what arrives has a shape and no values. Code that looks at them is refused.",
        "tests/check/test_against_gloo.py",
    ),
    StandIn(
        "numbers that a step reads from tensors, and their text",
        "frontends/torch/ranks/logged.py:Logging.__torch_function__",
        "training steps are traced",
        "They can be formatted, added up and kept. They are finite, and counts are above 0, where a step asks. What else decides by one is refused.",
        "tests/check/test_numbers_of_steps.py",
    ),
    StandIn(
        "memory of tensors",
        "frontends/torch/torch_api.py:fake_mode",
        "always",
        "Tensors have shapes and no values. What asks for values, addresses or storages is refused.",
        "tests/execute/test_run.py",
    ),
    StandIn(
        "the reducer of torch.nn.parallel.DistributedDataParallel",
        "frontends/torch/ranks/averaging.py:stand_in",
        "ranks are traced",
        "PyTorch's own class runs; its reducer averages parameter by parameter, without buckets. "
        "Buffers of ranks are compared where it would broadcast them. Communication hooks, `join`, "
        "mixed precision and parameters without a gradient are refused.",
        "tests/check/test_ddp.py",
    ),
    StandIn(
        "torch.distributed.new_group",
        "frontends/torch/ranks/groups.py:noted",
        "ranks are built and traced",
        "Calls the real one, and notes the group and its line: ranks that make others are refuted.",
        "tests/check/test_groups.py",
    ),
    StandIn(
        "torch.distributed.device_mesh.DeviceMesh",
        "frontends/torch/ranks/dtensors.py:real_meshes",
        "ranks are traced",
        "Its tensor of ranks has values although others have none.",
        "tests/execute/test_stand_ins.py",
    ),
    StandIn(
        "torch.nn.Module.register_parameter",
        "frontends/torch/ranks/build.py:parameters_on",
        "ranks are built",
        "Parameters have no memory; hooks and attributes of the one that was given go to the new one.",
        "tests/execute/test_stand_ins.py",
    ),
    StandIn(
        "torch.nn.Module.register_parameter",
        "frontends/torch/materialize.py:_registered_on_meta",
        "a model is built",
        "Parameters are on the meta device from the start.",
        "tests/frontend/test_capture.py",
    ),
    StandIn(
        "torch.autograd.backward",
        "frontends/torch/ranks/collectives.py:Watch.within_backwards",
        "ranks are traced",
        "Calls the real one, and notes what its ops belong to.",
        "tests/check/test_pipelines.py",
    ),
    StandIn(
        "torch.distributed.pipelining.schedules._PipelineSchedule.__init__",
        "frontends/torch/ranks/pipelines.py:note_schedules",
        "ranks are traced",
        "Calls the real one, and notes the line.",
        "tests/check/test_pipelines.py",
    ),
    StandIn(
        "calls for a CUDA device",
        "frontends/torch/ranks/device_free.py:answer_by_cpu",
        "`check --device-free`",
        "The CPU answers; the verdict names the calls. Such a module is not run.",
        "tests/check/test_more.py",
    ),
    StandIn(
        "parallelize_module, fully_shard and functions that place",
        "frontends/torch/ranks/placing.py:Placing.__enter__",
        "a patch is read",
        "Calls the real ones, and notes the line that placed a parameter.",
        "tests/execute/test_execute.py",
    ),
    StandIn(
        "torch.distributed.fsdp._fully_shard's cut of a parameter into chunks",
        "frontends/torch/ranks/placing.py:cut_when_asked",
        "a patch is read, ranks are traced",
        "Cuts the chunk that the rank takes, not one for each rank. One that the owner put there stays.",
        "tests/frontend/test_recording.py",
    ),
    StandIn(
        "generators of Python, numpy and PyTorch",
        "frontends/torch/single_draws.py:given",
        "modes are compared",
        "A single draw is a number that is chosen: near 0, 1/2 and 1, and on both sides of what it is "
        "compared with. Where results differ the model is refused.",
        "tests/frontend/test_single_draws.py",
    ),
    StandIn(
        "numbers of chosen rows, and entries of loops over them",
        "frontends/torch/chosen.py:_tells.complete",
        "rows that values choose are read as all rows",
        "Stand in for what is not known; asked for anything that depends on it, they refuse.",
        "tests/frontend/test_chosen.py",
    ),
    StandIn(
        "functions that say which rank asks: get_rank, get_local_rank, get_coordinate, RANK",
        "frontends/torch/ranks/few.py:Asking.__init__",
        "few of many ranks are traced",
        "Each answers as PyTorch's does, and notes the line that asks. Then all ranks are traced.",
        "tests/check/test_kinds.py",
    ),
    StandIn(
        "the environment, the clock and the process",
        "frontends/torch/surroundings.py:Surroundings.watched",
        "a model is imported, built and called",
        "Calls the real ones, and notes the line that reads; the verdict names it.",
        "tests/frontend/test_surroundings.py",
    ),
    StandIn(
        "dropout and single draws",
        "frontends/torch/modes.py:nothing_drawn",
        "modes are compared, patches are read",
        "Dropout gives what it is given; what decides a branch is drawn near 0, 1/2 and 1.",
        "tests/frontend/test_modes.py",
    ),
    StandIn(
        "dropout",
        "execute/run/rank.py:without_dropout",
        "a run, where train mode draws from PyTorch's generator and differs",
        "Dropout gives what it is given; the verdict says so.",
        "tests/execute/test_run.py",
    ),
    StandIn(
        "torch.autograd.Function.apply",
        "frontends/torch/torch_api.py:no_custom_backward",
        "a model is exported",
        "Refuses: export drops a backward that is written by hand.",
        "tests/frontend/test_capture.py",
    ),
    StandIn(
        "torch.autograd.Function.apply",
        "frontends/torch/chosen.py:called",
        "rows are read that a mask chooses",
        "Refuses functions whose rows are not followed.",
        "tests/frontend/test_chosen.py",
    ),
    StandIn(
        "torch.autograd.Function.apply",
        "frontends/torch/runs.py:noted_functions",
        "code is translated",
        "Calls the real one, and notes it.",
        "tests/untraceable",
    ),
    StandIn(
        "torch.Tensor.register_hook, register_post_accumulate_grad_hook",
        "frontends/torch/torch_api.py:no_gradient_hooks",
        "a model is captured",
        "Refuses: export drops hooks on gradients.",
        "tests/frontend/test_capture.py",
    ),
    StandIn(
        "torch.compiler.is_compiling, is_exporting",
        "frontends/torch/torch_api.py:as_it_runs",
        "a model is exported",
        "The owner's code hears no, as in a run.",
        "tests/frontend/test_asked.py",
    ),
    StandIn(
        "torch.utils.checkpoint._is_compiling",
        "frontends/torch/ranks/tracing.py:follow",
        "ranks are traced",
        "Activation checkpointing hears no, as in a run.",
        "tests/cli/test_gpus.py",
    ),
    StandIn(
        "kernels of the CPU",
        "frontends/torch/torch_api.py:plain_kernels",
        "always",
        "Without oneDNN; `Module.to` of what is so already gives the module; masks of transformers are "
        "not asked whether they are causal. The numbers are the same over the reals.",
        "tests/frontend/test_capture.py",
    ),
    StandIn(
        "torch.compile",
        "frontends/torch/compiled.py:read",
        "where the owner's files name it",
        "What it makes runs op by op, as it is written. A run compiles it.",
        "tests/targets/test_cases.py",
    ),
    StandIn(
        "how Python compiles the owner's files",
        "frontends/torch/asked/sources.py:watch_sources",
        "always",
        "Calls, attributes and exceptions of the owner's code go through functions of ours, which "
        "answer as in a run, or refuse.",
        "tests/frontend/test_asked.py",
    ),
    StandIn(
        "torch.library.Library.impl",
        "frontends/torch/asked/answers.py:no_other_kernels",
        "always",
        "Refuses another kernel of one of PyTorch's ops.",
        "tests/check/test_asked.py",
    ),
    StandIn(
        "FakeTensor and FakeTensorMode.__torch_dispatch__, threading.Thread, ThreadPoolExecutor, Future",
        "frontends/torch/asked/threads.py:threads_followed",
        "always",
        "A thread runs where it is joined. An op that may run beside one, or a thread that is not joined, is refused.",
        "tests/check/test_asked.py",
    ),
    StandIn(
        "torch.finfo",
        "frontends/torch/runs.py:Watch.__enter__",
        "code is translated",
        "Calls the real one, and notes the number.",
        "tests/untraceable",
    ),
    StandIn(
        "modules of a model around one that is translated",
        "frontends/torch/partial.py:capture_around",
        "code is translated",
        "A module that gives what its translation gives.",
        "tests/untraceable",
    ),
)


def table() -> str:
    """The stand-ins as a table in Markdown."""
    head = ["| stands for | when | differs in | compared in |", "|---|---|---|---|"]
    rows = [
        f"| {s.real} (`{s.where}`) | {s.active} | {s.differs} | `{s.compared}` |" for s in STAND_INS
    ]
    return "\n".join([*head, *rows]) + "\n"
