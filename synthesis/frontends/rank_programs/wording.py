"""Lines that are put into other words before they are parsed: held to their form here."""

from collections.abc import Mapping

from shardproof.synthesis.frontends.rank_programs.form import HOLE
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.types import KINDS
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.text.parser import parse_attrs

Tokens = tuple[str, ...]


def sent(tokens: Tokens) -> None:
    """`send %x {to=RANK, tag=INTEGER}`, the tag optional. Raises MalformedError."""
    head = tokens[:1] == ("send",) and tokens[1:2] and tokens[1][0] == "%" and tokens[2:3] == ("{",)
    if not head or ":" in tokens or not _peer(tokens, "to"):
        raise MalformedError("a send", expected="send %x {to=RANK}", got=" ".join(tokens))


def received(tokens: Tokens) -> None:
    """`%x = recv {from=RANK, tag=INTEGER} : TYPE`, the tag optional. Raises MalformedError."""
    head = tokens[0][0] == "%" and tokens[1:4] == ("=", "recv", "{")
    if not head or tokens.count(":") != 1 or not _peer(tokens, "from"):
        expected = "%x = recv {from=RANK} : TYPE"
        raise MalformedError("a recv", expected=expected, got=" ".join(tokens))


def rootless(tokens: Tokens, op: str) -> None:
    """A call of those that bring no value: `%x = OP {ranks=[...], ...} : TYPE`.

    Raises MalformedError.
    """
    if tokens[1:4] != ("=", op, "{") or tokens.count(":") != 1:
        raise MalformedError(f"a {op} without an operand says the type of its result")
    stated = attributes(tokens)
    known = {"ranks", *REGISTRY[op].attrs} - {"mesh_dim"}
    odd = [k for k, v in stated.items() if k not in known or (k != "ranks" and v != [HOLE])]
    if odd:
        raise MalformedError(f"attribute {odd[0]} of {op}", got=" ".join(stated[odd[0]]))


def alone(tokens: Tokens, numbers: Mapping[str, object], op: str) -> None:
    """A collective of one rank, which gives back what it is given. Raises MalformedError."""
    declared = REGISTRY.get(op)
    if declared is None or "mesh_dim" not in declared.attrs or tokens[0][0] != "%":
        raise MalformedError(f"{op} is called by no list of ranks")
    if tokens[1:3] != ("=", op) or tokens[3][0] != "%" or tokens[4] != "{":
        raise MalformedError(f"{op} of one value", got=" ".join(tokens))
    stated = attributes(tokens)
    words = [
        f"{k}={' '.join(str(numbers[k]) if t == HOLE else t for t in v)}"
        for k, v in stated.items()
        if k != "ranks"
    ]
    for name, value in parse_attrs(", ".join(words), op).items():
        if name not in declared.attrs or name == "mesh_dim":
            raise MalformedError(f"op {op} has no attribute {name}")
        if not KINDS[name].holds(value):
            raise MalformedError(f"attribute {name} of {op}", expected=KINDS[name].says)
        if name == "index" and value != 0:
            raise MalformedError(f"{op} of one rank", expected="index=0", got=f"index={value}")


def cut(tokens: Tokens, op: str, ends: tuple[str, ...]) -> None:
    """`%x = slice %y {dim=..., start=..., stop=..., step=...}`, or a pad. Raises MalformedError."""
    stated = attributes(tokens)
    odd = [k for k, v in stated.items() if k not in ("dim", *ends, "step") or len(v) > 1]
    head = tokens[1:3] == ("=", op) and tokens[3][0] == "%" and tokens[4] == "{"
    if odd or not head:
        raise MalformedError(f"a {op}", got=" ".join(tokens))


def attributes(tokens: Tokens) -> dict[str, list[str]]:
    """What stands in the braces: name -> tokens of its value.

    Raises:
        MalformedError: something else, or a name twice.
    """
    if "}" not in tokens:
        raise MalformedError("attributes without an end", expected="}")
    out: dict[str, list[str]] = {}
    inside: list[list[str]] = [[]]
    depth = 0
    for token in tokens[tokens.index("{") + 1 : tokens.index("}")]:
        depth += (token == "[") - (token == "]")
        if token == "," and not depth:
            inside.append([])
        else:
            inside[-1].append(token)
    for part in inside if any(inside) else ():
        if len(part) < 3 or part[1] != "=" or part[0] in out:
            raise MalformedError("attributes", expected="name=value, each once", got=" ".join(part))
        out[part[0]] = part[2:]
    return out


def _peer(tokens: Tokens, key: str) -> bool:
    stated = attributes(tokens)
    return key in stated and set(stated) <= {key, "tag"} and set(map(len, stated.values())) == {1}
