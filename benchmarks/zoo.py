"""`python -m benchmarks.zoo [CLASS ...]`: how far the models of the installed transformers come.

Every class for causal and masked language models, translation, images and audio that can be built
with the sizes below, and runs on one device, is planned for two ranks, proved, patched, and run on
two processes against one. Rows are in `benchmarks/results/zoo.jsonl`, and a run that was stopped
goes on; tables and totals are written from them. `--sample 30` takes so many, the same each time,
from every group as many as its share.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.blocks import DOCS, write
from benchmarks.kept import NOT_TRIED, RESULTS, Kept, counts, go_on, lines, options
from benchmarks.parallelize import Job

PAGE = RESULTS / "zoo.md"
CAUSAL = "causal language models"
GROUPS = {
    "ForCausalLM": CAUSAL,
    "LMHeadModel": CAUSAL,
    "ForMaskedLM": "masked language models",
    "ForConditionalGeneration": "encoders and decoders",
    "MTModel": "encoders and decoders",
    "ForImageClassification": "images",
    "ForCTC": "audio",
    "ForAudioClassification": "audio",
}
"""By what a class's name ends in."""
SOUND = 400
"""Samples of a sound."""
SIDE = 32
"""Of the images of a class that takes any size."""
SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "max_position_embeddings": 64,
    "max_target_positions": 64,
    "n_positions": 64,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "embedding_size": 32,
    "embedding_dim": 32,
    "dim": 32,
    "word_embed_proj_dim": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 4,
    "head_dim": 8,
    "d_kv": 8,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "d_ff": 64,
    "hidden_dim": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "rotary_dim": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 4,
    "state_size": 8,
    "time_step_rank": 4,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": 6,
}
"""Given to every model whose config has the field."""

OWN: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("zoo_sizes.json").read_text())
"""What the configs of some classes need besides, by patterns of names; null: not given."""

DEPTH = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layer",
    "n_layers",
)
"""Fields of configs that say how many blocks a model has."""


def fields(name: str) -> dict[str, Any]:
    """The config of a class: the sizes that it has fields for, then its own. Where attention is
    latent, there are as many keys as queries."""
    import transformers

    kind: Any = getattr(transformers, name).config_class
    known: set[str] = {*vars(kind), *kind.attribute_map}
    known |= set(getattr(kind, "__dataclass_fields__", ()))
    out = {k: v for k, v in SIZES.items() if k in known and _is_number(kind, k)}
    if "qk_rope_head_dim" in known:
        out |= {"num_key_value_heads": 4}
        out |= {"head_dim": SIZES["qk_rope_head_dim"]} if "head_dim" in known else {}
    return {k: v for k, v in {**out, **own(name)}.items() if v is not None}


def own(name: str) -> dict[str, Any]:
    """What is given to a class alone."""
    return {k: v for p, some in OWN.items() if fnmatchcase(name, p) for k, v in some.items()}


def _is_number(kind: Any, field: str) -> bool:
    """Whether a field of a config can be set to a number: it is neither worked out nor a list."""
    default = getattr(kind, kind.attribute_map.get(field, field), None)
    fixed = isinstance(default, property) and default.fset is None
    return not (fixed or isinstance(default, list | tuple))


def classes() -> Iterator[tuple[str, str]]:
    """(group, class) of those that take token ids, or pixels, or a sound alone."""
    import transformers

    for name in sorted(dir(transformers)):
        group = next((g for end, g in GROUPS.items() if name.endswith(end)), None)
        kind: Any = getattr(transformers, name) if group and not name.startswith("Auto") else None
        if group is None or getattr(kind, "config_class", None) is None:
            continue
        taken = set(inspect.signature(kind.forward).parameters)
        first = "pixel_values" if group == "images" else "input_ids"
        first = "input_values" if group == "audio" else first
        mixed = {"input_ids", "pixel_values", "input_features"} & taken - {first}
        if first in taken and not mixed:
            yield group, name


def has_plan(name: str) -> bool:
    """Whether transformers publishes a tensor-parallel plan for a class."""
    import transformers

    kind: Any = getattr(transformers, name)
    plan = getattr(kind.config_class, "base_model_tp_plan", None)
    return bool(plan or getattr(kind, "_tp_plan", None))


def inputs(name: str) -> tuple[str, ...]:
    """What is given to a class whose inputs do not follow from its config."""
    group = next(g for end, g in GROUPS.items() if name.endswith(end))
    sizes = fields(name)
    if group == "images" and not {"image_size", "vision_config"} & set(sizes):
        labels = sizes.get("num_labels", 2)
        return (f"pixel_values=f32[4,3,{SIDE},{SIDE}]", f"labels=i64[4]<{labels}")
    if group != "audio":
        return ()
    bins = [sizes[k] for k in ("max_length", "num_mel_bins") if k in sizes] or [SOUND]
    return (f"input_values=f32[4,{','.join(map(str, bins))}]",)


LARGE = 4_000_000
"""Parameters of a model that is not small."""


def unfit(name: str) -> str:
    """Why a class is not built with these sizes, or does not run so on one device; '' if it is."""
    import torch

    from shardproof.synthesis.frontends.torch.inputs import find_inputs, torch_types
    from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
    from shardproof.synthesis.frontends.torch.target import library

    specs = tuple(map(InputSpec.parse, inputs(name)))
    try:
        target = library(name, fields(name), {})
        with torch.device("meta"):
            count = sum(p.numel() for p in target.build().parameters())
        if count > LARGE:
            return f"{count:,} parameters: its sizes have other names"
        model = target.build().eval()
        asked = CaptureRequest(f"hf:{name}", batch=4, seq=8, inputs=specs)
        found = find_inputs(asked, target, model)
        types = torch_types(found).values()
        given = [torch.ones(shape, dtype=dtype) for shape, _, dtype in types]
        with torch.no_grad():
            model(**dict(zip((s.name for s in found), given, strict=True)))
    except Exception as problem:  # noqa: BLE001  (the library's code)
        return f"{type(problem).__name__}: {problem}".split("\n")[0][:160]
    return ""


def job(name: str, mesh: str, layers: int = 2) -> Job:
    sizes = fields(name)
    deep = {k: layers for k in DEPTH if k in sizes and k not in own(name)}
    items = tuple(f"{k}={json.dumps(v)}" for k, v in {**sizes, **deep}.items())
    given = [x for item in inputs(name) for x in ("--input", item)]
    size = ("--batch", "4", "--seq", "8", "--run", "--timeout", "300")
    return Job(name, f"hf:{name}", items, ("--mesh", mesh, *size, *given))


def sample(found: Sequence[tuple[str, str]], count: int, seed: int = 0) -> list[tuple[str, str]]:
    """So many of the (group, class), from every group as many as its share, at least one."""
    draw = random.Random(seed)
    out: list[tuple[str, str]] = []
    for group in dict.fromkeys(g for g, _ in found):
        members = [pair for pair in found if pair[0] == group]
        out += draw.sample(members, max(1, round(count * len(members) / len(found))))
    return out


def totals(rows: Sequence[Kept], groups: Mapping[str, str]) -> str:
    """Markdown: how many of each group."""
    tried = [r for r in rows if r.verdict != NOT_TRIED]
    causal = [r for r in tried if groups[r.name] == CAUSAL]
    sums = {
        "with a tensor-parallel plan of transformers": [r for r in tried if has_plan(r.name)],
        CAUSAL: causal,
        "all others": [r for r in tried if r not in causal],
    }
    out = [
        "| classes | tried | proved | run | useful | of those tried |",
        "|---|---|---|---|---|---|",
    ]
    for title, some in sums.items():
        numbers = counts(some)
        cells = [title, *map(str, numbers), f"{numbers[-1] / max(1, len(some)):.0%}"]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def page(rows: Sequence[Kept], groups: Mapping[str, str]) -> str:
    """Markdown: the totals, then a line a class."""
    import transformers

    tried = [r for r in rows if r.verdict != NOT_TRIED]
    head = HEAD.format(version=transformers.__version__, all=len(groups))
    out = [head, totals(rows, groups).rstrip()]
    for group in dict.fromkeys(groups.values()):
        some = [r for r in tried if groups[r.name] == group]
        if not some:
            continue
        out += ["", f"## {group.capitalize()}: {counts(some)[-1]} of {len(some)}", "", *lines(some)]
    out += ["", "## Not tried", "", "With these sizes they are not built, or not run.", ""]
    out += [f"- {r.name}: {r.said}" for r in rows if r.verdict == NOT_TRIED]
    return "\n".join(out) + "\n"


HEAD = """# Models of transformers

Written by `make zoo`; do not edit. Of the {all} classes of transformers {version} for causal and
masked language models, encoders with decoders, images and audio, those below were built small,
with two layers, for `tp=2`.

*Proved* is said of the patch, *run* of two processes against one; a plan is *useful* where it
splits at least half of what the mesh could split.
"""


def main() -> int:
    parser = options("benchmarks.zoo")
    parser.add_argument("--sample", type=int, help="so many, of all groups")
    parser.add_argument("--layers", type=int, default=2, help="from 3 on, blocks are rolled")
    given = parser.parse_args()
    found = list(classes())
    groups = {name: group for group, name in found}
    if given.sample:
        given.names = [name for _, name in sample(found, given.sample)]
    meshes = given.mesh or ["tp=2"]
    jobs = [(mesh, job(name, mesh, given.layers)) for mesh in meshes for name in groups]
    rows = go_on(given, RESULTS / "zoo.jsonl", jobs, unfit)
    two = [r for r in rows if r.mesh == "tp=2"]
    PAGE.write_text(page(two, groups))
    write(DOCS / "models.md", "zoo", totals(two, groups))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
