"""What a constructor, or a function that builds a model, is given."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from shardproof.synthesis.frontends.torch.ranks.arguments import (
    MissingError,
    Settings,
    arguments,
    known_fields,
    leaves,
    nested,
)


@dataclass
class Sizes:
    width: int = 16
    layers: int = 2


@dataclass
class Rates:
    lr: float
    warmup: int = 0


class Bare:
    def __init__(self, config):
        self.config = config


class Typed:
    def __init__(self, config: Rates, depth: int = 1):
        self.config = config


def by_name(width: int, depth: int = 2) -> None: ...


def other(size) -> None: ...


def test_a_config_of_no_stated_class_is_the_dataclass_that_takes_the_fields() -> None:
    given, used = arguments(Bare, {"width": 4}, {})
    assert given == {"config": Sizes(width=4)}
    assert used == ("width",)
    assert known_fields(Bare) == ("Sizes", ["width", "layers"])
    assert arguments(Bare, {"lr": 0.1}, {})[0] == {"config": Rates(0.1)}
    assert arguments(Bare, {}, {})[0] == {"config": Sizes()}


def test_two_classes_that_take_as_many_fields_are_asked_about() -> None:
    with pytest.raises(MissingError, match="may be Sizes or Rates"):
        arguments(Bare, {"lr": 0.1, "width": 4}, {})


def test_fields_that_are_arguments_stay_apart_from_those_of_the_config() -> None:
    given, used = arguments(Typed, {"lr": 0.1, "depth": 3}, {})
    assert given == {"config": Rates(0.1), "depth": 3}
    assert used == ("depth", "lr")
    assert arguments(by_name, {"width": 8}, {})[0] == {"width": 8}
    assert known_fields(by_name) == ("by_name", ["width", "depth"])


def test_an_argument_that_is_called_otherwise_is_the_owners() -> None:
    with pytest.raises(MissingError, match="it needs size"):
        arguments(other, {"width": 4}, {})


class AnyArgs:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


def test_arguments_of_any_number_are_no_config() -> None:
    assert arguments(AnyArgs, {}, {})[0] == {}


def test_settings_are_read_by_attribute_and_by_name() -> None:
    settings: Any = Settings(width=4)
    assert settings.width == settings["width"] == settings.get("width") == 4
    assert "width" in settings
    assert "depth" not in settings
    assert settings.get("depth", 3) == 3
    assert not hasattr(settings, "depth")
    with pytest.raises(AttributeError, match="give --config depth=VALUE"):
        _ = settings.depth


class Pair(NamedTuple):
    left: Any
    right: Any


def forward(sizes: Sizes, pair: Pair, both: tuple[Any, Any], batch: Any, x: Any) -> None: ...


def test_names_with_dots_are_put_together_as_they_were_taken_apart() -> None:
    given = {
        "sizes": Sizes(3, 4),
        "pair": Pair(5, 6),
        "both": (7, 8),
        "batch": {"ids": 9, "deep": [{"a": 10}, {"a": 11}]},
        "x": 12,
    }
    flat = dict(leaf for item in given.items() for leaf in leaves(*item))
    assert flat["sizes.layers"] == 4
    assert flat["batch.deep.1.a"] == 11
    assert nested(forward, flat) == given
    assert type(nested(forward, flat)["pair"]) is Pair
