"""What patches import, so that they add few lines to your file and use nothing private of PyTorch.

    mesh = proved_mesh(model, mesh, {"dp": 2, "tp": 2}, "4f1d0c7a9b21")

`shardproof parallelize --inline` writes a patch that has these definitions in the file instead.
"""

from typing import Any

from shardproof.runtime.source import digest

PLACEMENT = (
    "AttentionParallel",
    "ChannelParallel",
    "ContextParallel",
    "FusedColwiseParallel",
    "FusedConv1DColwiseParallel",
    "InnerParallel",
    "KVHeadParallel",
    "MadeWeightParallel",
    "OwnOutput",
    "ProductParallel",
    "RecurrentParallel",
    "SharedInput",
    "SharedOutput",
    "Stage",
    "causal_lm_loss",
    "divide_axes",
    "divide_held",
    "dp_shard",
    "edited_method",
    "one_dim",
    "own_argument",
    "own_pieces",
    "replicate_rest",
    "split_in_ratio",
    "summed_over",
    "synced_norms",
    "vocab_parallel_cross_entropy",
    "whole_over",
    "whole_param",
    "whole_params",
)
__all__ = ["proved_mesh", "watch", *PLACEMENT]  # pyright: ignore[reportUnsupportedDunderAll]


def proved_mesh(model: Any, mesh: Any, sizes: dict[str, int], runtime: str) -> Any:
    """`mesh`, or where it is None a new one of these sizes on the device of the model.

    Args:
        sizes: of the mesh that the patch was proved for, outermost dim first.
        runtime: digest of this package as the patch was proved with it.

    Raises:
        ValueError: the mesh has other dims or sizes, or this package changed.
    """
    if runtime != digest():
        raise ValueError(
            f"parallelize is proved with shardproof.runtime {runtime}, and {digest()} is "
            "installed: run `shardproof parallelize` again, or install the version it was made with"
        )
    from shardproof.runtime import placement

    code: Any = placement
    return code.checked_mesh(model, mesh, sizes)


def __getattr__(name: str) -> Any:
    if name == "watch":
        from shardproof.synthesis.guard import watch

        return watch
    if name not in PLACEMENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardproof.runtime import placement

    return getattr(placement, name)
