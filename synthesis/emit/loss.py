"""Puts a vocab-parallel cross entropy where the model computes its loss."""

import ast
from pathlib import Path

from shardproof.synthesis.emit.extents import function_at
from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.emit.reads import TELLING
from shardproof.synthesis.emit.snippets import SNIPPETS, Snippet
from shardproof.synthesis.emit.source import Edit, SourceText
from shardproof.synthesis.frontends.torch.homes import is_users

ATTRIBUTES = ("loss_fn", "cross_entropy_fn")
"""What the loss may be called in the owner's class, in the order in which they are tried."""
TAKEN = ("ignore_index",)


def library_loss(
    facts: ModelFacts, vocabulary: bool = True, rows: bool = False
) -> tuple[str, Snippet]:
    """The line that installs the loss of a transformers causal LM, and the definition it needs:
    on logits split over the vocabulary, or over the rows of the sequence, or both.

    Raises:
        EmitError: the model does not take its loss from `self.loss_function`, or another loss.
    """
    if facts.loss != "ForCausalLMLoss":
        raise EmitError(
            f"{facts.class_name} computes its loss by {facts.loss or 'its own forward'}, which has "
            "no vocab-parallel form here; plan it with whole logits"
        )
    if rows:
        given = "tp" if vocabulary else ""
        line = f"    model.loss_function = context.causal_lm_loss({given})"
        return line, SNIPPETS["ContextParallel"]
    return "    model.loss_function = causal_lm_loss(tp)", SNIPPETS["causal_lm_loss"]


def loss_obstacle(facts: ModelFacts) -> str | None:
    """Why the loss cannot be computed on split logits; None where it can."""
    try:
        if facts.file is None:
            library_loss(facts)
        else:
            file = loss_file(facts) or facts.file
            text = Path(file).read_bytes().decode("utf-8")
            user_loss(SourceText(file, text), facts.class_name)
    except EmitError as error:
        return str(error)
    return None


def loss_file(facts: ModelFacts) -> str:
    """The file of the class that computes the loss; empty where it is not known."""
    own = facts.forwards.get(facts.class_name)
    return own.file if own is not None and is_users(own.file) else ""


def user_loss(
    source: SourceText, class_name: str, vocabulary: bool = True, rows: bool = False
) -> tuple[list[Edit], tuple[str, Snippet]]:
    """Edits that route `F.cross_entropy` of the class through an attribute, and its installation:
    on logits split over the vocabulary, or over the rows of the sequence, or both.

    Raises:
        EmitError: not exactly one such call in the class, or one with other options.
    """
    owner = next(
        (n for n in source.tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), None
    )
    calls = [
        node
        for node in ast.walk(owner or ast.Module([], []))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "cross_entropy"
    ]
    if owner is None or len(calls) != 1:
        raise EmitError(
            f"{source.path}: a vocab-parallel loss needs one cross_entropy call in {class_name}, "
            f"found {len(calls)}; plan it without one"
        )
    call = calls[0]
    options = [k.arg for k in call.keywords if k.arg not in TAKEN]
    if options or len(call.args) != 2:
        raise EmitError(
            f"{source.path}:{call.lineno}: cross_entropy with {', '.join(map(str, options))} "
            "has no vocab-parallel form here"
        )
    elsewhere = _read_elsewhere(source, call)
    if elsewhere:
        raise EmitError(
            f"{source.path}:{elsewhere}: {source.of(call.args[0])} is read outside of "
            "cross_entropy too, which a vocab-parallel loss leaves split; plan it without one"
        )
    attribute = _free(source, owner)
    name = "vocab_parallel_cross_entropy" if vocabulary else "ContextParallel"
    made = f"{name}(tp)" if vocabulary else ""
    install = f"    model.{attribute} = {f'context.loss({made})' if rows else made}"
    return _through(source, owner, call, attribute), (install, SNIPPETS[name])


def _free(source: SourceText, owner: ast.ClassDef) -> str:
    text = source.of(owner)
    free = next((name for name in ATTRIBUTES if name not in text), None)
    if free is None:
        raise EmitError(
            f"{source.path}:{owner.lineno}: {owner.name} uses the names {' and '.join(ATTRIBUTES)} "
            "already, one of which the loss would get; plan it without a vocab-parallel loss"
        )
    return free


def _through(source: SourceText, owner: ast.ClassDef, call: ast.Call, attribute: str) -> list[Edit]:
    """The loss is called as an attribute of the model, which `__init__` sets to what it was."""
    made = next((m for m in _methods(owner) if m.name == "__init__" and m.args.args), None)
    own, original = _own_name(owner, call), source.of(call.func)
    if made is None:
        given = f'getattr({own}, "{attribute}", {original})'
        return [Edit(*source.span(call.func), given)]
    called = next((s for s in made.body if "super().__init__(" in source.of(s)), made.body[-1])
    start, end = source.span(called)
    pad = source.text[source.starts[called.lineno - 1] : start]
    line = f"\n{pad}{made.args.args[0].arg}.{attribute} = {original}"
    return [source.insertion(end, line), Edit(*source.span(call.func), f"{own}.{attribute}")]


def _methods(owner: ast.ClassDef) -> list[ast.FunctionDef]:
    return [node for node in owner.body if isinstance(node, ast.FunctionDef)]


def _own_name(owner: ast.ClassDef, call: ast.Call) -> str:
    """What the method that holds a call names its instance (`self` for nearly everyone)."""
    for method in _methods(owner):
        if call in ast.walk(method) and method.args.args:
            return method.args.args[0].arg
    return "self"


def _read_elsewhere(source: SourceText, call: ast.Call) -> int | None:
    """The line after the last assignment to the logits on which code that is neither the loss nor
    a `return` reads their values."""
    function = function_at(source.tree, call.lineno)
    name = _base(call.args[0])
    if function is None or name is None:
        return None
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
    made = max((n.lineno for n in names if isinstance(n.ctx, ast.Store)), default=0)
    left: set[int] = set()
    for node in ast.walk(function):
        told = isinstance(node, ast.Attribute) and node.attr in TELLING
        if node is call or told:
            left |= {id(n) for n in ast.walk(node)}
        elif isinstance(node, ast.Return) and node.value is not None:
            left |= {id(n) for n in _given(node.value)}
    lines = [n.lineno for n in names if n.lineno > made and id(n) not in left]
    return min(lines, default=None)


def _given(value: ast.expr) -> list[ast.expr]:
    """What a `return` hands out as it is."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return [inner for part in parts for inner in _given(part)]
        case ast.Call(args=parts, keywords=named):
            return [*parts, *(k.value for k in named)]
        case _:
            return [value]


def _base(node: ast.expr) -> str | None:
    """The name of `y` in `y.view(a, b)`, `y[:, 1:].flatten(0, 1)`."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
                node = inner
            case _:
                return None
    return node.id
