"""Declares composite ops: written with primitive ops, so their meaning is not a second opinion."""

from collections.abc import Callable
from typing import Any

from shardproof.verifier.kernel.composites.expansion import results
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.registry import Op, Site, register
from shardproof.verifier.kernel.program.types import TensorType

Body = Callable[..., str | tuple[str, ...]]


def composite(signature: str, **attrs: Any) -> Callable[[Body], Op]:
    """Declare an op by its expansion `(builder, *inputs, **attrs) -> value, or several`."""

    def declare(body: Body) -> Op:
        def types(site: Site) -> tuple[TensorType, ...]:
            b = Builder(site.op)
            names = [b.input(f"i{k}", t) for k, t in enumerate(site.types)]
            return tuple(b.types[v] for v in results(body(b, *names, **site.attrs)))

        name = body.__name__.strip("_")
        return register(Op(name, "composite", signature, types, attrs=attrs, expand=body))

    return declare
