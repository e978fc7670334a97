"""What capture gives back. Plain data: no torch."""

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from shardproof.synthesis.frontends.torch.asserted import Asserted
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.synthesis.frontends.torch.rolling.paths import Group
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import ITEMSIZE, TensorType
from shardproof.verifier.text.digest import to_json
from shardproof.verifier.text.jsonio import from_json

T = TypeVar("T")
RESULT = "result.json"
"""The file in which a worker leaves what it found."""


def _written(array: Any) -> str:
    held = io.BytesIO()
    np.save(held, np.asarray(array), allow_pickle=False)
    return base64.b64encode(held.getvalue()).decode()


def _read(text: str) -> NDArray[Any]:
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)


Array = Annotated[NDArray[Any], PlainValidator(_read), PlainSerializer(_written)]
"""An array that stands in JSON as the bytes of a `.npy` file."""
ProgramData = Annotated[Program, PlainValidator(from_json), PlainSerializer(to_json)]


@dataclass(frozen=True)
class SourceFile:
    """A file of the owner's code, as it was when it was captured."""

    path: str
    """As `Source.file` shows it."""
    location: str
    """Where it lies on this machine; '' for a library file."""
    sha256: str
    text: str


@dataclass(frozen=True)
class ModuleFact:
    """A module of the model."""

    path: str
    kind: str
    """Class name."""
    file: str
    line: int
    """Where its class is defined; 0 where that is not known."""
    ints: Mapping[str, int]
    """Integer attributes, for example `in_features` or `num_heads`."""
    base: str = ""
    """`Linear`, where the class is that or made of it; a table that is made of another may look up
    other rows than it is given."""


@dataclass(frozen=True)
class Draw:
    """One tensor that is drawn, its entries independent of each other and of all else."""

    name: str
    """`dropout.<module>.<n>` of zeros and ones, `drawn.<module>.<n>` of others: the n-th such that
    this module draws."""
    shape: tuple[int, ...]
    law: str
    """How entries are distributed: `kept with probability 0.9`, `normal with mean 0 ...`."""
    file: str
    line: int
    text: str
    dtype: str = "bool"
    below: int = 0
    """Integers are from 0 to less than this, where it is not 0."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class ModelFacts:
    """The model as a whole, at its true depth."""

    target: str
    class_name: str
    files: tuple[SourceFile, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    params: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    """Every distinct parameter by its first name."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Names of each parameter that has several; the first is the one in `params`."""
    frozen: tuple[str, ...] = ()
    """Parameters that need no gradient."""
    unused: tuple[str, ...] = ()
    """Parameters that the outputs do not depend on."""
    modules: Mapping[str, ModuleFact] = field(default_factory=dict[str, ModuleFact])
    groups: tuple[Group, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    train: bool = False
    """Whether it is train mode, dropout left out, that was captured."""
    untrained: tuple[str, ...] = ()
    """Trainable parameters that are read, and that no gradient reaches."""
    asserts: tuple[Asserted, ...] = ()
    """Asserts on values of tensors, which are left out."""
    whole: bool = False
    """Whether rows that values choose are read as all rows."""
    returned: tuple[str, ...] = ()
    """What `forward` calls its results."""
    draws: tuple[Draw, ...] = ()
    """What forward draws: inputs of the program by these names."""

    @property
    def param_bytes(self) -> int:
        return sum(t.size * ITEMSIZE[t.dtype] for t in self.params.values())

    @property
    def param_count(self) -> int:
        """Parameters, tied ones counted once."""
        return sum(t.size for t in self.params.values())

    @property
    def tokens(self) -> tuple[int, ...]:
        """The shape of its token ids; empty where it takes none."""
        return next((i.shape for i in self.inputs if i.dtype in ("i64", "i32")), ())


@dataclass(frozen=True)
class Captured:
    """A model as a one-device program, forward and backward."""

    program: ProgramData
    consts: Mapping[str, Array]
    """Values of the inputs with role const."""
    facts: ModelFacts
    assumptions: tuple[str, ...] = ()
    """Sentences for the report: what capture took for granted."""
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by phase; `total` is the wall time that the caller saw."""
    peak_bytes: int = 0
    """Peak resident memory of the capturing process."""


def dump(kind: type[T], value: T) -> str:
    """A dataclass of what capture gives back as JSON."""
    return json.dumps(TypeAdapter(kind).dump_python(value), default=str)


def load(kind: type[T], text: str) -> T:
    """Read what `dump` wrote."""
    return TypeAdapter(kind).validate_python(json.loads(text))
