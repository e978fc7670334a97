"""What a batch and the process that speaks to Ray for it say: one JSON object a line."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter


class Commission(BaseModel, frozen=True):
    """A job to run somewhere on the cluster."""

    name: str
    words: tuple[str, ...]
    """The command line of its process, after the interpreter."""
    order: str
    out: str
    """Where its out-directory belongs, on the machine of the batch."""
    model: str
    timeout: float | None


class Hello(BaseModel, frozen=True):
    """The cluster answers."""

    kind: Literal["hello"] = "hello"
    cpus: int
    nodes: int


class At(BaseModel, frozen=True):
    """A job is at another phase."""

    kind: Literal["at"] = "at"
    name: str
    phase: str


class Over(BaseModel, frozen=True):
    """A job ended. `code` is its exit code, negative for a signal."""

    kind: Literal["over"] = "over"
    name: str
    code: int
    seconds: float = 0.0
    events: tuple[str, ...] = ()
    words: str = ""
    stopped: str = ""


class Lost(BaseModel, frozen=True):
    """The cluster cannot be used (any more)."""

    kind: Literal["lost"] = "lost"
    why: str


Word = Annotated[Hello | At | Over | Lost, Field(discriminator="kind")]
WORD: TypeAdapter[Word] = TypeAdapter(Word)
