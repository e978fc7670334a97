"""The movement hash of `synthesis.guard.fingerprint` on torch tensors, the same to the bit.

`torch.compile` fuses the whole hash into one loop over the words, on the device where they are.
Where it has no compiler, CPU tensors go to numpy without a copy and others run op by op.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Literal

import torch

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.mix import GOLDEN, M1, M2, MASK
from shardproof.synthesis.guard.fingerprint.movement import Fp, hash_words, reading
from shardproof.synthesis.guard.fingerprint.partition import TensorPartition
from shardproof.synthesis.guard.fingerprint.region import Region

Backend = Literal["compile", "numpy", "eager"]
WORTH_COMPILING = 1 << 20
"""Bytes below which a tensor on the CPU goes to numpy: the first compilation takes seconds."""
_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _signed(x: int) -> int:
    x &= MASK
    return x - (1 << 64) if x >> 63 else x


def _fmix(x: torch.Tensor) -> torch.Tensor:
    # int64 shifts keep the sign; the mask takes away what they bring in.
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(M1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(M2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _row_sum(words: torch.Tensor, base: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The sum over rows of words (rows, run), int64; row i begins at index base[i]."""
    run = torch.arange(words.shape[1], device=words.device, dtype=torch.int64)
    g = base[:, None] + run[None, :]
    return _fmix(words ^ _fmix(g * _signed(GOLDEN) + key)).sum()


@functools.cache
def _compiled() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    return torch.compile(_row_sum, dynamic=True)  # pyright: ignore[reportUnknownMemberType]  (torch has no type for it)


@functools.cache
def compiles(device: str) -> bool:
    """Whether `torch.compile` works for this kind of device, and rightly; tried once."""
    key = torch.tensor(_signed(GOLDEN), device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for rows, run in ((1, 1003), (7, 61)):
                base = torch.arange(rows, device=device) * 100
                words = torch.arange(rows * run, device=device).reshape(rows, run) * _signed(M1)
                if int(_compiled()(words, base, key)) != int(_row_sum(words, base, key)):
                    return False
    except Exception:  # noqa: BLE001  a missing compiler shows in many ways, all at the first call
        return False
    return True


def _bits(data: torch.Tensor, width: int) -> torch.Tensor:
    """The bits of a tensor as words of `width` bytes, flat, the last one filled up with zeros."""
    flat = data.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element or none, strides say nothing
        flat = flat.clone(memory_format=torch.contiguous_format)
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    size = flat.element_size()
    if width > size and flat.numel() % (width // size):
        raw = flat.view(torch.uint8)
        flat = torch.cat([raw, raw.new_zeros(-raw.numel() % width)])
    return flat.view(_VIEWS[width])


def fingerprint(
    data: torch.Tensor,
    where: TensorPartition | Region | None = None,
    key: int = 0,
    *,
    width: int | None = None,
    backend: Backend | None = None,
) -> Fp:
    """`synthesis.guard.fingerprint.fingerprint` of a torch tensor, with the same guarantee.

    Takes every dtype torch can view as bytes, bfloat16 and float8 among them. `backend` is chosen
    by what there is: `compile`; on the CPU `numpy` where that fails or the tensor is small; else
    `eager`.

    Raises:
        FingerprintError: no dense tensor, a dtype without bytes, a shape that is not that of the
            piece, or no such backend.
    """
    value = fingerprint_on_device(data, where, key, width=width, backend=backend)
    if isinstance(value, Fp):
        return value
    tensor, _, width = value
    return Fp(int(tensor) & MASK, data.nbytes, key & MASK, width)


def fingerprint_on_device(
    data: torch.Tensor,
    where: TensorPartition | Region | None = None,
    key: int = 0,
    *,
    width: int | None = None,
    backend: Backend | None = None,
) -> Fp | tuple[torch.Tensor, int, int]:
    """As `fingerprint`, with its value left on the device: a scalar tensor (int64, the same bits),
    with the number of words and their size, so that no op waits for the host. The `numpy` backend
    gives the fingerprint itself."""
    if not isinstance(data, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FingerprintError(
            f"fingerprint: expected a torch tensor, got {type(data).__name__}; numpy arrays are "
            "hashed by shardproof.synthesis.guard.fingerprint"
        )
    if data.is_meta:
        raise FingerprintError("fingerprint: a tensor on the device meta holds no bits")
    if data.layout != torch.strided or data.is_quantized:
        raise FingerprintError(
            f"fingerprint: expected a dense tensor, got layout {data.layout} of {data.dtype}"
        )
    if hasattr(data, "to_local"):
        raise FingerprintError(
            "fingerprint: a DTensor is spread over ranks; hash its to_local(), with the partition "
            "that it is of"
        )
    key = integer(key, "fingerprint: the key")
    runs, width = reading(tuple(data.shape), data.element_size(), where, width)
    kind = data.device.type
    if backend not in (None, "compile", "numpy", "eager"):
        raise FingerprintError(f"fingerprint: backend {backend!r}; compile, numpy or eager")
    if backend is None:
        small = kind == "cpu" and data.nbytes < WORTH_COMPILING
        other: Backend = "numpy" if kind == "cpu" else "eager"
        backend = other if small or not compiles(kind) else "compile"
    try:
        words = _bits(data, width)
    except NotImplementedError as error:
        raise FingerprintError(
            f"fingerprint: a tensor of {data.dtype} cannot be read as bytes: {error}"
        ) from None
    if backend == "numpy":
        array = words.cpu().numpy().view(f"u{width}")
        return Fp(hash_words(array, runs, key), data.nbytes, key & MASK, width)
    if not words.numel():
        return torch.zeros((), dtype=torch.int64, device=data.device), 0, width
    base = torch.tensor(runs.bases.astype("int64"), device=data.device)
    if width < 8:  # widened here: compiled kernels of dynamic size misread narrow integers
        words = words.to(torch.int64) & (1 << 8 * width) - 1
    salt = torch.tensor(_signed(key), dtype=torch.int64, device=data.device)
    step = _compiled() if backend == "compile" else _row_sum
    return step(words.reshape(len(runs.bases), -1), base, salt), words.numel(), width
