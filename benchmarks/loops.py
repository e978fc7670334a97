"""`python -m benchmarks.loops`: training steps as public scripts write them, and wrong twins.

Each folder of `benchmarks/loops` holds a script whose `parallel` and `single` build what its
`train_step` trains. A wrong twin changes one place. What is true is found by running three steps of
three seeds on gloo in float64, against one process; then each is judged as `shardproof check --step
--no-run` does. The first verdicts, before any rule was written for these, are kept beside those of
now. The command ends with 1 where a wrong one is proved.
"""

# pyright: basic

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import shardproof
from benchmarks.blocks import DOCS, write
from benchmarks.parallelize import ROOT
from shardproof.agent.actions.words import read_mesh
from shardproof.agent.check.contract import Statements
from shardproof.agent.check.pieces import Pieces
from shardproof.synthesis.execute.run.launcher import LaunchError
from shardproof.synthesis.execute.run.running import Order, of_file, run
from shardproof.synthesis.frontends.torch.ranks.stated import read_lines
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.proof import Proof
from shardproof.verifier.verdict import Counterexample, Unknown

FOLDER = ROOT / "benchmarks" / "loops"
RESULTS = ROOT / "benchmarks" / "results" / "loops.jsonl"
DRAWS = (20, 28, 36, 42)
"""How many loops there were after each draw."""
WORDS = {Proof: "proved", Counterexample: "refuted", Unknown: "unknown"}


@dataclass(frozen=True)
class Loop:
    """A script, its inputs, and of each wrong twin the file, a text of it and what stands there."""

    name: str
    script: str
    inputs: tuple[str, ...]
    wrong: tuple[tuple[str, str, str], ...]
    ranks: str = "dp=2"
    drawn: tuple[tuple[str, str, str], ...] = ()
    """What a run cannot compare, by file, and what stands there in a run: of what is drawn a function
    of the row, of a narrow dtype a wide one."""
    rows: int | None = 0
    """The dim of the inputs along which ranks have their rows; None: they have all."""
    split: str = "S"
    """How they have these, as `--input-layout` says it."""

    @property
    def mesh(self) -> Mesh:
        return read_mesh(self.ranks)

    @property
    def layouts(self) -> tuple[str, ...]:
        if self.rows is None:
            return ()
        placed = ",".join(f"{self.split}({self.rows})@{dim}" for dim in self.mesh.names)
        return tuple(f"{i.partition('=')[0]}={placed}" for i in self.inputs)


LOOPS = (
    Loop(
        "nanogpt",
        "train.py",
        ("x=i64[4,2,4]<12", "y=i64[4,2,4]<12"),
        (
            ("train.py", "loss = loss / accumulation", "loss = loss / gradient_accumulation_steps"),
            ("train.py", "micro_step == accumulation - 1", "micro_step == accumulation"),
        ),
    ),
    Loop(
        "mingpt",
        "trainer.py",
        ("x=i64[4,4]<12", "y=i64[4,4]<12"),
        (
            ("trainer.py", "Trainer(Config(), DistributedDataParallel(GPT()))", "Trainer(Config(), GPT())"),
            (
                "trainer.py",
                "clip_grad_norm_(model.parameters(), config.grad_norm_clip)",
                "clip_grad_norm_(model.parameters(), config.grad_norm_clip * x.shape[0] / 4000)",
            ),
        ),
    ),
    Loop(
        "litgpt",
        "pretrain.py",
        ("ids=i64[8,5]<12",),
        (
            ("pretrain.py", "set_requires_gradient_sync(not enabled)", "set_requires_gradient_sync(enabled)"),
            ("pretrain.py", "fabric.backward(loss / train.gradient_accumulation_iters)", "fabric.backward(loss / fabric.world_size / train.gradient_accumulation_iters)"),
        ),
    ),
    Loop(
        "accelerate",
        "run_clm.py",
        ("input_ids=i64[8,5]<12",),
        (
            ("run_clm.py", "self.step % self.gradient_accumulation_steps == 0", "self.step % self.gradient_accumulation_steps == 1"),
            ("run_clm.py", "model = DistributedDataParallel(model)", "self.gradient_accumulation_steps *= 2\n            model = DistributedDataParallel(model)"),
        ),
    ),
    Loop(
        "imagenet",
        "main.py",
        ("images=f32[4,3,8,8]", "target=i64[4]<6"),
        (
            ("main.py", "DistributedDataParallel(Net())", "DistributedDataParallel(Net())\n    model = model.module"),
            ("main.py", "    optimizer.step()\n", "    optimizer.step()\n    if dist.is_initialized() and dist.get_rank() == 0:\n        model.module.fc.bias.data.mul_(0.99)\n"),
        ),
    ),
    Loop(
        "t5",
        "train.py",
        ("source_ids=i64[4,3]<12", "source_mask=i64[4,3]<2", "target_ids=i64[4,3]<12"),
        (
            ("train.py", "loss.backward()", "(loss / (dist.get_world_size() if dist.is_initialized() else 1)).backward()"),
            ("train.py", "step_size=1, gamma=0.85)\n\n\ndef train", "step_size=1, gamma=0.85**2)\n\n\ndef train"),
        ),
    ),
    Loop(
        "torchtune",
        "recipe.py",
        ("tokens=i64[8,4]<12", "labels=i64[8,4]<12|-100"),
        (
            ("recipe.py", 'batch["labels"][:, 1:] != self', 'batch["labels"] != self'),
            ("recipe.py", "torch.distributed.all_reduce(num_tokens)", "num_tokens *= self.world_size"),
        ),
    ),
    Loop(
        "torchtitan",
        "train.py",
        ("tokens=i64[4,4]<12", "labels=i64[4,4]<12|-100"),
        (
            ("train.py", "1.0, foreach=True", "1.0 / (2 if self.tp else 1), foreach=True"),
            ("train.py", "global_valid_tokens = local_valid_tokens", "global_valid_tokens = local_valid_tokens * (2 if self.tp else 1)"),
        ),
        ranks="tp=2",
        rows=None,
    ),
    Loop(
        "ddp_tutorial",
        "multigpu.py",
        ("source=f32[8,8]", "targets=i64[8]<5"),
        (
            ("multigpu.py", "static_graph=False), 2)", "static_graph=False), 4)"),
            ("multigpu.py", "        self._forward(*last)\n", "            self._forward(*last)\n"),
        ),
    ),
    Loop(
        "fairseq",
        "trainer.py",
        ("src_tokens=i64[8,3]<12", "prev_output_tokens=i64[8,3]<12", "target=i64[8,3]<12"),
        (
            ("trainer.py", "numer = self.data_parallel_world_size", "numer = 1"),
            ("trainer.py", "total, sample_size = buf[0].float(), buf[1].float()", "total = buf[0].float()"),
        ),
    ),
    Loop(
        "timm",
        "train.py",
        ("input=f32[4,3,4,4]", "target=i64[4]<6"),
        (
            ("train.py", "LabelSmoothingCrossEntropy()", "LabelSmoothingCrossEntropy(0.2 if distributed else 0.1)"),
            ("train.py", "    output = model(input)\n", "    with getattr(model, 'no_sync', torch.enable_grad)():\n        output = model(input)\n"),
        ),
    ),
    Loop(
        "deepspeed",
        "train.py",
        ("x=f32[8,8]", "y=i64[8]<8"),
        (
            ("engine.py", "        if len(small_bucket) > 0:\n            self.allreduce_and_copy(small_bucket)\n", ""),
            ("engine.py", "dist.all_reduce(tensor, group", "dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group"),
        ),
    ),
    Loop(
        "megatron",
        "pretrain_gpt.py",
        ("tokens=i64[8,4]<12", "labels=i64[8,4]<12"),
        (
            ("ddp.py", "        dist.all_reduce(num_tokens, group=model.group)\n", "        num_tokens *= dist.get_world_size(model.group)\n"),
            ("ddp.py", "op=dist.ReduceOp.SUM, group=self.group", "op=dist.ReduceOp.AVG, group=self.group"),
        ),
    ),
    Loop(
        "diffusion",
        "train.py",
        ("latents=f32[4,3,4,4]",),
        (
            ("train.py", "clip_grad_norm_(unet.parameters(), 1.0)", "clip_grad_norm_(unet.parameters(), 1.0 / (bsz / 2))"),
            ("train.py", "unet = DistributedDataParallel(unet)", "pass"),
        ),
        drawn=(
            ("train.py", "torch.randn_like(latents)", "torch.sin(37 * latents)"),
            ("train.py", "0, noise_scheduler.num_train_timesteps, (bsz,), device=latents.device\n    ).long()", "0, 1, (bsz,)\n    ) + (1000 * latents.flatten(1).sum(1).abs()).long() % 10"),
        ),
    ),
    Loop(
        "vae",
        "main.py",
        ("image=f32[4,1,4,4]",),
        (
            ("main.py", "/ len(data)", "/ 4"),
            ("main.py", "DistributedDataParallel(VAE())", "VAE()"),
        ),
        drawn=(("main.py", "torch.randn_like(std)", "torch.sin(37 * mu.detach())"),),
    ),
    Loop(
        "clip",
        "train.py",
        ("images=f32[4,8]", "texts=i64[4,3]<12"),
        (
            ("loss.py", "labels = labels + num_logits * self.rank", "labels = labels + 0 * self.rank"),
            ("loss.py", "torch.cat(torch.distributed.nn.all_gather(text_features), dim=0)", "torch.cat(torch.distributed.nn.all_gather(text_features.detach()), dim=0)"),
        ),
    ),
    Loop(
        "mlm",
        "trainer.py",
        ("input_ids=i64[8,6]<12", "labels=i64[8,6]<12|-100"),
        (
            ("trainer.py", "return loss * self.world_size", "return loss"),
            ("trainer.py", "            dist.all_reduce(num_items_in_batch)\n", "            num_items_in_batch = num_items_in_batch * 1\n"),
        ),
    ),
    Loop(
        "segmentation",
        "train.py",
        ("image=f32[4,3,8,8]", "target=i64[4,8,8]<4|255"),
        (
            ("train.py", "world * summed / valid.clamp(min=1)", "summed / valid.clamp(min=1)"),
            ("train.py", "        dist.all_reduce(valid)\n", "        valid *= world\n"),
        ),
    ),
    Loop(
        "lora",
        "finetune.py",
        ("input_ids=i64[4,4]<12",),
        (
            ("finetune.py", "    fully_shard(model, mesh=mesh)\n", "    fully_shard(model, mesh=mesh)\n    for m in model.modules():\n        if isinstance(m, LoraLinear):\n            m.scaling /= 2\n"),
            ("finetune.py", "    loss.backward()\n", "    getattr(model, 'set_requires_gradient_sync', bool)(False)\n    loss.backward()\n    getattr(model, 'set_requires_gradient_sync', bool)(True)\n"),
        ),
    ),
    Loop(
        "fsdp2",
        "example.py",
        ("x=i64[4,4]<12",),
        (
            ("example.py", "optim = torch.optim.Adam(model.parameters(), lr=1e-2)", "optim = torch.optim.Adam(model.parameters(), lr=1e-3)"),
            ("example.py", "clip_value=0.1", "clip_value=0.01 if hasattr(model, 'unshard') else 0.02"),
        ),
    ),
    Loop(
        "guided",
        "train.py",
        ("batch=f32[4,4,3]", "t=i64[4]<10", "noise=f32[4,4,3]"),
        (
            ("train.py", ") >= batch.shape[0]", ") > batch.shape[0]"),
            ("train.py", "lr=lr, weight_decay=0.01", "lr=lr * (2 if distributed else 1), weight_decay=0.01"),
        ),
    ),
    Loop(
        "dino",
        "train.py",
        ("first=f32[4,4]", "second=f32[4,4]", "local=f32[4,4]"),
        (
            ("train.py", "            dist.all_reduce(batch_center)\n", "            pass\n"),
            ("train.py", "(len(teacher_output) * world_size())", "len(teacher_output)"),
        ),
    ),
    Loop(
        "deformable",
        "engine.py",
        ("features=f32[4,3,5]", "labels=i64[4,3]<4", "boxes=f32[4,3,4]"),
        (
            ("engine.py", "            dist.all_reduce(num_boxes)\n", "            num_boxes = num_boxes * get_world_size()\n"),
            ("engine.py", "min=1) / get_world_size())", "min=1))"),
        ),
    ),
    Loop(
        "muon",
        "train.py",
        ("x=i64[4,3]<8", "y=i64[4,3]<8"),
        (
            ("train.py", "updates_flat, op=dist.ReduceOp.SUM", "updates_flat, op=dist.ReduceOp.AVG"),
            ("train.py", "return build(DistributedDataParallel)", "return build(lambda model: model)"),
        ),
    ),
    Loop(
        "ppo",
        "ppo.py",
        ("obs=f32[3,4,3]", "actions=i64[2,4]<3", "logprobs=f32[2,4]", "rewards=f32[2,4]", "dones=f32[3,4]"),
        (
            ("ppo.py", "norm_adv = False", "norm_adv = True"),
            ("ppo.py", "part / args.world_size", "part"),
        ),
        rows=1,
    ),
    Loop(
        "moe",
        "train.py",
        ("ids=i64[4,2]<8", "labels=i64[4,2]<8"),
        (
            ("train.py", "            dist.all_reduce(tokens_per_expert)\n            tokens_per_expert = tokens_per_expert / dist.get_world_size()\n", "            pass\n"),
            ("train.py", "tokens_per_expert / dist.get_world_size()", "tokens_per_expert * 1"),
        ),
    ),
    Loop(
        "apex",
        "train.py",
        ("images=f32[4,2,4,4]", "target=i64[4]<5"),
        (
            ("train.py", "flat.mul_(self.gradient_predivide_factor / self.world_size)", "flat.mul_(1 / self.world_size)"),
            ("train.py", " or self.missing == 0", ""),
        ),
    ),
    Loop(
        "grpo",
        "trainer.py",
        ("ids=i64[8,4]<7", "mask=i64[8,3]<2", "rewards=f32[8]", "old_logps=f32[8,3]", "ref_logps=f32[8,3]"),
        (
            ("trainer.py", "slice(self.process_index * local, (self.process_index + 1) * local)", "slice(0, local)"),
            ("trainer.py", "gather(mask.sum().view(1)).sum()", "mask.sum()"),
        ),
    ),
    Loop(
        "hsdp",
        "train.py",
        ("ids=i64[8,3]<8", "labels=i64[8,3]<8"),
        (
            ("train.py", "set_requires_all_reduce(is_last)", "set_requires_all_reduce(not is_last)"),
            ("train.py", '"mesh": mesh["rep", "dp"]', '"mesh": mesh["dp"]'),
        ),
        ranks="rep=2,dp=2",
        drawn=(("train.py", "param_dtype=torch.bfloat16", "param_dtype=torch.float64"),),
    ),
    Loop(
        "uneven",
        "train.py",
        ("x=f32[6,6]", "y=i64[6]<5"),
        (
            ("train.py", "(loss * len(x[rows]) / len(x))", "(loss / len(starts))"),
            ("train.py", "last=start == starts[-1]", "last=start + self.micro_batch == len(x)"),
        ),
    ),
    Loop(
        "siglip",
        "train.py",
        ("images=f32[6,8]", "texts=i64[6,3]<12"),
        (
            ("loss.py", "negative_only=True,", "negative_only=False,"),
            ("loss.py", "NeighbourExchange.apply(ctx.to_rank, ctx.from_rank, ctx.group, grad_output)", "NeighbourExchange.apply(ctx.from_rank, ctx.to_rank, ctx.group, grad_output)"),
        ),
        ranks="dp=3",
    ),
    Loop(
        "dmuon",
        "train.py",
        ("x=i64[4,3]<8", "y=i64[4,3]<8"),
        (
            ("train.py", "whole = newton_schulz(g.full_tensor())\n                    u = distribute_tensor(whole, g.device_mesh, g.placements)", "part = newton_schulz(g.to_local())\n                    u = DTensor.from_local(part, g.device_mesh, g.placements)"),
            ("train.py", "self.adjust_lr_for_muon(lr, p.shape)", "self.adjust_lr_for_muon(lr, p.to_local().shape if isinstance(p, DTensor) else p.shape)"),
        ),
    ),
    Loop(
        "ep",
        "train.py",
        ("ids=i64[4,2]<8", "labels=i64[4,2]<8"),
        (
            ("train.py", "            else:\n                p.grad /= world\n", ""),
            ("train.py", 'getattr(p, "allreduce", True)', "p.ndim"),
        ),
    ),
    Loop(
        "ulysses",
        "train.py",
        ("input_ids=i64[2,4]<11", "shift_labels=i64[2,4]<11|-100"),
        (
            ("train.py", "return total_loss / total_good_tokens", "return sum(losses_per_rank) / sp_world_size"),
            ("train.py", "                p.grad /= dist.get_world_size(self.sp_group)\n", ""),
        ),
        ranks="sp=2",
        rows=1,
    ),
    Loop(
        "dpo",
        "trainer.py",
        ("chosen=i64[4,4]<9", "rejected=i64[4,4]<9", "chosen_mask=i64[4,4]<2", "rejected_mask=i64[4,4]<2", "ref_chosen=f32[4]", "ref_rejected=f32[4]"),
        (
            ("trainer.py", "default_hooks.bf16_compress_hook)", "lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0]))"),
            ("trainer.py", "loss = losses.mean()", "loss = losses.sum() / 4"),
        ),
        drawn=(("trainer.py", "default_hooks.bf16_compress_hook", "default_hooks.allreduce_hook"),),
    ),
    Loop(
        "distill",
        "kd.py",
        ("tokens=i64[4,3]<8", "labels=i64[4,3]<8|-100", "teacher_logits=f32[4,3,8]"),
        (
            ("kd.py", "        loss.backward()\n", "        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1\n        (loss / world).backward()\n"),
            ("kd.py", "        loss.backward()\n", "        loss.backward()\n        if torch.distributed.is_initialized():\n            torch.distributed.all_reduce(self.student.adapter.lora_a.weight.grad)\n"),
        ),
        ranks="tp=2",
        rows=None,
    ),
    Loop(
        "moco",
        "main_moco.py",
        ("first=f32[4,8]", "second=f32[4,8]"),
        (
            ("main_moco.py", " + N * get_rank()", ""),
            ("main_moco.py", "            self._update_momentum_encoder(m)\n", "            if get_rank() == 0:\n                self._update_momentum_encoder(m)\n"),
        ),
    ),
    Loop(
        "vicreg",
        "main_vicreg.py",
        ("x=f32[6,5]", "y=f32[6,5]"),
        (
            ("main_vicreg.py", "        dist.all_reduce(all_gradients)\n", ""),
            ("main_vicreg.py", "model = wrap(VICReg())", "model = wrap(VICReg(6 // (dist.get_world_size() if dist.is_initialized() else 1)))"),
        ),
    ),
    Loop(
        "sam",
        "train.py",
        ("inputs=f32[8,6]", "targets=i64[8]<5"),
        (
            ("train.py", "    predictions = model(inputs)\n    loss = smooth_crossentropy(predictions, targets).mean()\n    loss.backward()\n", "    with getattr(model, 'no_sync', torch.enable_grad)():\n        loss = smooth_crossentropy(model(inputs), targets).mean()\n        loss.backward()\n"),
            ("train.py", "second.mean().backward()", "(second.sum() / 8).backward()"),
        ),
    ),
    Loop(
        "gradcache",
        "train.py",
        ("questions=i64[8,3]<9", "passages=i64[8,3]<9"),
        (
            ("grad_cache.py", "scale_loss=True", "scale_loss=False"),
            ("grad_cache.py", "[model.no_sync for _ in range(len(model_inputs) - 1)] + [nullcontext]", "[nullcontext] + [model.no_sync for _ in range(len(model_inputs) - 1)]"),
        ),
    ),
    Loop(
        "distadam",
        "train.py",
        ("inputs=i64[4,3]<8", "targets=i64[4,3]<8"),
        (
            ("train.py", "op=dist.ReduceOp.AVG", "op=dist.ReduceOp.SUM"),
            ("train.py", "p_slice = p[rank * rank_size : (rank + 1) * rank_size]", "p_slice = p[:rank_size]"),
        ),
        drawn=(("train.py", "grad, op=dist.ReduceOp.AVG,", "grad / world_size,"),),
    ),
    Loop(
        "context",
        "train.py",
        ("input_ids=i64[2,8]<11", "target_ids=i64[2,8]<11|-100"),
        (
            ("zigzag.py", "last = 2 * world_size - 1 - rank", "last = world_size + rank"),
            ("train.py", "        position_ids = positions(dist.get_rank(group), world_size, local)\n", "        position_ids = position_ids + dist.get_rank(group) * local\n"),
        ),
        ranks="cp=2",
        rows=1,
        split="zigzag",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    loop: str
    twin: int
    """0: the loop as it is; else the number of the wrong twin."""
    truth: str
    verdict: str
    said: str
    seconds: float
    fault: str = ""
    blamed: str = ""
    first: str = ""
    """The verdict before any rule was written for these; empty where the twin is a later one."""


def written(loop: Loop, twin: int, folder: Path) -> str:
    """Put the files of a twin into the folder; the file and line of what is changed."""
    shutil.copytree(FOLDER / loop.name, folder, dirs_exist_ok=True)
    if not twin:
        return ""
    return changed(folder, *loop.wrong[twin - 1])


def changed(folder: Path, name: str, old: str, new: str) -> str:
    """Put a text of a file in the place of another; its file and line."""
    text = (folder / name).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{old!r} stands {text.count(old)} times in {name}")
    (folder / name).write_text(text.replace(old, new))
    return f"{name}:{text[: text.index(old)].count(chr(10)) + 1}"


def truth(loop: Loop, folder: Path) -> tuple[str, str]:
    """What a run on gloo says."""
    stated = Statements((), read_lines(loop.layouts, "--input-layout"), ())
    given = [InputSpec.parse(text) for text in loop.inputs]
    keys = ("name", "shape", "dtype", "below", "ignored")
    for name, old, new in loop.drawn:
        if old in (folder / name).read_text():
            changed(folder, name, old, new)
    script = folder / loop.script
    order = Order(
        of_file("single", script, {}),
        of_file("parallel", script, {}),
        loop.mesh,
        tuple({k: getattr(i, k) for k in keys} for i in given),
        step="train_step",
        step_of_one="train_step",
        modes=("train",),
        calls=3,
    )
    pieces = Pieces(loop.mesh, stated)
    try:
        ran = run(order, pieces.given, pieces.outputs, 1000)
    except LaunchError as problem:
        return "broken", str(problem)
    if ran.failed is not None or ran.unlike:
        return "broken", f"{ran.failed} {ran.unlike}"
    return ("right", "") if ran.worst is None else ("wrong", str(ran.worst))


def judged(loop: Loop, twin: int, known: str = "") -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        written(loop, twin, folder)
        true, seen = (known, "") if known else truth(loop, folder)
        fault = written(loop, twin, folder)
        start, verdict, said, blamed = time.monotonic(), "refused", "", ""
        try:
            found = shardproof.check(
                f"{folder}/{loop.script}:parallel",
                f"{folder}/{loop.script}:single",
                str(loop.mesh),
                inputs=list(loop.inputs),
                input_layout=loop.layouts,
                step="train_step",
                run=False,
            )
            verdict = WORDS[type(found)]
            if isinstance(found, Counterexample) and found.location is not None:
                source = found.location.source
                said, blamed = found.location.reason, f"{source.file}:{source.line}"
            elif isinstance(found, Unknown):
                said = found.reason.splitlines()[0]
        except Exception as problem:  # noqa: BLE001  (a row says what came of it)
            said = f"{problem} {getattr(problem, 'hint', '')}"
        seconds = round(time.monotonic() - start, 1)
        said = " ".join(said.replace(scratch, "").split())[:400]
        if true == "broken":
            said = f"{said} [{seen[:300]}]"
        return Row(loop.name, twin, true, verdict, said, seconds, fault, blamed)


def table(rows: Sequence[Row]) -> str:
    """How many were proved and refuted, at first and now, in Markdown, by draw."""
    right = [r for r in rows if r.truth == "right" and not r.twin]
    wrong = [r for r in rows if r.truth == "wrong" and r.twin]
    starts = (0, *DRAWS)
    draws = [{loop.name for loop in LOOPS[i:k]} for i, k in pairwise(starts)]

    def told(of: Sequence[Row], word: str) -> str:
        cells = list[str]()
        for draw in draws:
            some = [r for r in of if r.loop in draw]
            known = [r for r in some if r.first]
            cells.append(f"{sum(r.first == word for r in known)} of {len(known)}")
            cells.append(f"{sum(r.verdict == word for r in some)} of {len(some)}")
        return " | ".join(cells)

    heads = " | ".join(f"{k - i} loops at first | now" for i, k in pairwise(starts))
    lines = [
        f"| | {heads} |",
        f"|---|{'---|' * (2 * len(draws))}",
        f"| right steps proved | {told(right, 'proved')} |",
        f"| right steps refuted | {told(right, 'refuted')} |",
        f"| wrong steps proved | {told(wrong, 'proved')} |",
        f"| wrong steps refuted | {told(wrong, 'refuted')} |",
    ]
    return "\n".join(lines) + "\n"


def rows_of(path: Path) -> Iterator[Row]:
    if path.is_file():
        yield from (Row(**json.loads(line)) for line in path.read_text().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser("benchmarks.loops", description=__doc__)
    parser.add_argument(
        "--loop", default="", help="names, with commas, each with :TWIN where that alone is judged"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--truths", action="store_true", help="take what is true from the results")
    parser.add_argument("--new", action="store_true", help="only those without a row")
    asked = parser.parse_args()
    before = {(r.loop, r.twin): r for r in rows_of(asked.results)}
    todo = [(n, loop) for n in range(3) for loop in LOOPS if n <= len(loop.wrong)]
    for twin, loop in todo:
        old = before.get((loop.name, twin))
        named = {loop.name, f"{loop.name}:{twin}"} & set(asked.loop.split(","))
        if (asked.loop and not named) or (old and asked.new):
            continue
        row = judged(loop, twin, old.truth if old and asked.truths else "")
        first = old.first if old else row.verdict
        before[loop.name, twin] = Row(**{**asdict(row), "first": first})
        print(
            f"{row.loop:13} {row.twin} {row.truth:6} {row.verdict:8} {row.seconds:5} {row.fault:18} {row.blamed:18} {row.said}",
            flush=True,
        )
        asked.results.write_text("".join(json.dumps(asdict(r)) + "\n" for r in before.values()))
    if asked.results == RESULTS:
        write(DOCS / "training-step.md", "loops", table(list(before.values())))
    return int(any(r.truth == "wrong" and r.verdict == "proved" for r in before.values()))


if __name__ == "__main__":
    sys.exit(main())
