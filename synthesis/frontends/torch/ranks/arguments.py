"""What the factory of a module is given: what a rank is offered, fields of the config, or one
config object made of these.

The processes of a run read this file too: it imports nothing of PyTorch and nothing of shardproof.
"""

# pyright: basic

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints

CALLED = r"(?i)config|cfg|^(args|hps|hparams|params|opts?|options|settings)$"
"""Names that people give to one object of all settings."""
ANY_NAME, ANY_PLACE = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


class MissingError(Exception):
    """Arguments that nothing gives."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def arguments(
    factory: Any, fields: dict[str, Any], offered: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments by name: those without a default of the rank; of the fields; or one config object
    made of the fields. Also the fields that are used.

    Raises:
        MissingError: one has no value.
    """
    name = getattr(factory, "__name__", "the factory")
    parameters = inspect.signature(factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    own = {k: v for k, v in fields.items() if k in parameters or takes_any}
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    given = {k: v for k, v in offered.items() if k in needed and k not in own}
    used = set(own)
    for p in parameters.values():
        kind = None if p.name in own or p.name in given else _config_class(factory, p, fields)
        if kind is None:
            continue
        known = fields if kind is Settings else inspect.signature(kind).parameters
        inside = {k: v for k, v in fields.items() if k in known and k not in own}
        if inside or p.default is p.empty:
            given[p.name] = kind(**inside)
            used |= set(inside)
        break
    kwargs = given | own
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in kwargs
    ]
    if missing:
        ranks = f"; of a rank it may take {', '.join(offered)}" if offered else ""
        raise MissingError(
            f"{name} cannot be built: it needs {', '.join(missing)}",
            f"give --config {missing[0]}=...{ranks}",
        )
    return kwargs, tuple(sorted(used))


def _hints(factory: Any) -> dict[str, Any]:
    try:
        own = isinstance(factory, type) and not hasattr(factory, "_fields")
        return get_type_hints(factory.__init__ if own else factory)
    except Exception:  # noqa: BLE001  (names that only a type checker knows)
        return {}


class Settings(SimpleNamespace):
    """Values by name, for code that reads them off one argument of no stated class."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the config has no {name!r}: give --config {name}=VALUE", name=name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def get(self, name: str, default: Any = None) -> Any:
        """As that of a dict."""
        return vars(self).get(name, default)


def known_fields(factory: Any) -> tuple[str, list[str]]:
    """What takes the fields of a config, and their names: a config class, else the factory."""
    parameters = inspect.signature(factory).parameters
    for p in parameters.values():
        kind = _config_class(factory, p, {})
        if kind is not None and kind is not Settings:
            return kind.__name__, list(inspect.signature(kind).parameters)
    return factory.__name__, list(parameters)


def _config_class(factory: Any, parameter: inspect.Parameter, fields: Mapping[str, Any]) -> Any:
    """The class of which an argument is made of fields; None where it is not one config object.

    One that is called so, and says no class, is of the dataclass of its module that takes most of
    the fields, and needs no other; of `Settings` where its module has none.

    Raises:
        MissingError: of two.
    """
    if parameter.kind in (ANY_NAME, ANY_PLACE):
        return None
    kind = _hints(factory).get(parameter.name)
    kind = None if kind is Any else kind
    called = re.search(CALLED, parameter.name) is not None
    if isinstance(kind, type):
        return kind if dataclasses.is_dataclass(kind) or called else None
    if kind is not None or not called or parameter.default is not parameter.empty:
        return None
    declared = getattr(factory, "config_class", None)  # as classes of transformers have
    if isinstance(declared, type):
        return declared
    module = sys.modules.get(factory.__module__)
    known: dict[Any, int] = {}
    for found in vars(module).values():
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            taken = inspect.signature(found).parameters.values()
            if all(p.default is not p.empty or p.name in fields for p in taken):
                known[found] = sum(p.name in fields for p in taken)
    best = [k for k, count in known.items() if count == max(known.values())]
    if len(best) > 1:
        names = " or ".join(k.__name__ for k in best)
        raise MissingError(
            f"{parameter.name} of {factory.__name__} may be {names}",
            "annotate it, or name a function that builds the model",
        )
    return best[0] if best else Settings if fields else None


def argument_names(forward: Any) -> list[str]:
    """Names of the arguments of a `forward`, without `self`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(forward).parameters.values()
    return [p.name for p in found if p.kind in kinds][1:]


def nested(forward: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a `forward` by name. Those with dots are put together: `batch.ids` is an entry
    of a dict, or a field of the dataclass or named tuple that `batch` is annotated as, and `xs.0`
    of a list, or of what is annotated as a tuple."""
    return _together(_hints(forward), given)


def _together(hints: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {}
    out: dict[str, Any] = {}
    for name, value in given.items():
        head, dot, rest = name.partition(".")
        out[head] = value
        if dot:
            parts.setdefault(head, {})[rest] = value
    return out | {head: _whole(hints.get(head), inside) for head, inside in parts.items()}


def _whole(kind: Any, inside: Mapping[str, Any]) -> Any:
    make: Any = kind if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") else None
    values = _together(_hints(kind) if make else {}, inside)
    if make:
        return make(**values)
    if all(name.isdigit() for name in values):
        items = [values[name] for name in sorted(values, key=int)]
        return tuple(items) if (get_origin(kind) or kind) is tuple else items
    return values


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an argument holds by names with dots, as `nested` puts them together: of a dict, a
    dataclass, a named tuple or a sequence its entries, else itself."""
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, (tuple, list)):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inside in value.items():
        yield from leaves(f"{name}.{key}", inside)


def integers_of(value: Any) -> tuple[int, int | None]:
    """Of a tensor of integers: a bound that they are below, and the one negative integer among
    them, as of labels that a loss ignores; 0 and None where there are several or no entries."""
    negative = value[value < 0].unique().tolist() if value.numel() else []
    if not value.numel() or len(negative) > 1:
        return 0, None
    return max(int(value.max()) + 1, 0), negative[0] if negative else None


def by_position(forward: Any, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as people write them: by position as far as they go on from the first, for hooks
    see these alone; the others by name."""
    given = nested(forward, given)
    found = list(inspect.signature(forward).parameters.values())[1:]
    kinds = {p.kind for p in found}
    if ANY_PLACE in kinds and ANY_NAME not in kinds and not argument_names(forward):
        return list(given.values()), {}
    first = takewhile(lambda p: p.kind is p.POSITIONAL_OR_KEYWORD and p.name in given, found)
    named = {p.name: given[p.name] for p in first}
    return list(named.values()), {n: v for n, v in given.items() if n not in named}


def takes_any(forward: Any) -> bool:
    """Whether a `forward` takes arguments of any name, or any number of them."""
    kinds = {p.kind for p in inspect.signature(forward).parameters.values()}
    return bool(kinds & {ANY_NAME, ANY_PLACE})
