"""What a generated step asks before it acts, by kind: an expression, and what sets it up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """A condition of a step; `v` is the tensor there, `self` the module."""

    kind: str
    says: str
    """The expression."""
    setup: str = ""
    """Lines of the file."""
    alike: bool = False
    """Every rank and every call is answered alike: both sides may ask it."""


def _each(kind: str, *expressions: str, alike: bool = False) -> tuple[Asked, ...]:
    return tuple(Asked(kind, e, alike=alike) for e in expressions)


DRAWS = (
    *_each(
        "draws",
        *("random.random() > 0.3", "random.random() < 0.8", "random.uniform(-1, 1) > 0"),
        *("random.gauss(0, 1) > 0", "random.choice([0, 1, 1]) == 1", "random.getrandbits(1)"),
        *("random.sample(range(9), 2)[0] > 3", "random.betavariate(2, 2) > 0.4"),
        *("random.triangular(0, 1) > 0.5", "random.expovariate(1) > 0.7"),
        *("random.SystemRandom().random() > 0.5", "random.randrange(3) == 1"),
        *("np.random.rand() > 0.5", "np.random.randint(2) == 1", "np.random.permutation(4)[0] > 1"),
        *("torch.rand(()) > 0.4", "torch.rand(3).max() > 0.5", "torch.randn(()) > 0"),
        *(
            "torch.randint(0, 2, ()) == 1",
            "torch.randperm(4)[0] > 1",
            "torch.rand(()).item() < 0.6",
        ),
        *("torch.bernoulli(torch.full((), 0.5)) > 0", "torch.empty(()).uniform_() > 0.5"),
        *("random.choices([0, 1], [1, 3])[0]", "(random.random(), random.random())[1] > 0.5"),
        *(
            "0.2 < random.random() < 0.9",
            "round(random.random()) == 1",
            "int(random.random() * 4) % 2",
        ),
        "max(random.random() for _ in range(3)) > 0.7",
    ),
    Asked("draws", "RNG.random() > 0.5", "RNG = random.Random(5)"),
    Asked("draws", "RNG.random() > 0.5", "RNG = np.random.default_rng(7)"),
    Asked("draws", "RNG.rand() > 0.5", "RNG = np.random.RandomState(3)"),
    Asked("draws", "torch.rand((), generator=RNG) > 0.5", "RNG = torch.Generator().manual_seed(3)"),
    Asked("draws", "secrets.randbelow(2)", "import secrets"),
    Asked("draws", "uuid.uuid4().int % 2", "import uuid"),
    Asked("draws", "os.urandom(1)[0] % 2"),
    Asked(
        "draws", "bits()[0]", "def bits():\n    b = [0, 1, 2]\n    random.shuffle(b)\n    return b"
    ),
)
WORLD = (
    *_each(
        "process",
        *("time.time_ns() // 1000 % 2", "int(time.perf_counter() * 1e5) % 2", "os.getpid() % 2"),
        *("time.monotonic_ns() // 100 % 2", "'LOCAL_RANK' in os.environ", "hash('a step') % 2"),
        *("id(object()) // 16 % 2", "threading.get_ident() // 4096 % 2", "len(sys.modules) % 2"),
        *("int(time.process_time() * 1e6) % 2", "os.getppid() % 2", "'GLOO_SOCKET' in os.environ"),
        *("next(iter({'a', 'b', 'c', 'd', 'e'})) < 'c'", "sys.getrefcount(self) % 2"),
        *("os.environ.get('RANK') == '1'", "os.environ.get('WORLD_SIZE') == '2'"),
    ),
    Asked("process", "gc.get_count()[0] % 2", "import gc"),
    Asked("process", "datetime.datetime.now().microsecond % 2", "import datetime"),
    Asked(
        "process", "int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt) % 2", "import resource"
    ),
)


def _ticks(*ways: tuple[str, str]) -> tuple[Asked, ...]:
    return tuple(Asked("state", f"{call} > {n}", setup) for setup, call in ways for n in (1, 2))


STATE = (
    *_ticks(
        ("SEEN = []\ndef tick():\n    SEEN.append(1)\n    return len(SEEN)", "tick()"),
        ("def tick(seen=[]):\n    seen.append(1)\n    return len(seen)", "tick()"),
        ("import itertools\nCOUNT = itertools.count(1)", "next(COUNT)"),
        ("class At:\n    n = 0\ndef tick():\n    At.n += 1\n    return At.n", "tick()"),
        ("def tick():\n    tick.n = getattr(tick, 'n', 0) + 1\n    return tick.n", "tick()"),
        (
            "def made():\n    n = 0\n    def tick():\n        nonlocal n\n        n += 1\n        return n\n"
            "    return tick\nTICK = made()",
            "TICK()",
        ),
        (
            "def counted():\n    n = 0\n    while True:\n        n += 1\n        yield n\nGEN = counted()",
            "next(GEN)",
        ),
        (
            "import contextvars\nVAR = contextvars.ContextVar('n', default=0)\ndef tick():\n"
            "    VAR.set(VAR.get() + 1)\n    return VAR.get()",
            "tick()",
        ),
        (
            "HERE = threading.local()\ndef tick():\n    HERE.n = getattr(HERE, 'n', 0) + 1\n    return HERE.n",
            "tick()",
        ),
        (
            "import collections\nQ = collections.deque(maxlen=9)\ndef tick():\n    Q.append(1)\n    return len(Q)",
            "tick()",
        ),
        (
            "COUNTS = {}\ndef tick():\n    COUNTS['n'] = COUNTS.get('n', 0) + 1\n    return COUNTS['n']",
            "tick()",
        ),
        ("A = np.zeros(1)\ndef tick():\n    A[0] += 1\n    return int(A[0])", "tick()"),
        (
            "def tick():\n    n = int(os.environ.get('STEP_N', '0')) + 1\n    os.environ['STEP_N'] = str(n)\n"
            "    return n",
            "tick()",
        ),
        (
            "LEFT = [3, 2, 1]\ndef tick():\n    return 4 - (LEFT.pop() if LEFT else 4) if False else 3 - len(LEFT)"
            " + bool(LEFT and LEFT.pop())",
            "tick()",
        ),
        (
            "SHAPES = set()\ndef tick():\n    SHAPES.add(len(SHAPES))\n    return len(SHAPES)",
            "tick()",
        ),
        ("B = bytearray()\ndef tick():\n    B.append(0)\n    return len(B)", "tick()"),
    ),
    Asked(
        "state",
        "first(None) is not KEY()",
        "KEY = object\n@functools.lru_cache\ndef first(_):\n    return object()",
    ),
    Asked(
        "state",
        "often()",
        "SEEN = []\n@functools.lru_cache\ndef key(n):\n    SEEN.append(n)\n    return n\n"
        "def often():\n    n = len(SEEN)\n    key(0)\n    return len(SEEN) == n",
    ),
    Asked("state", "bool(self.__dict__.setdefault('seen', []).append(1)) or len(self.seen) > 1"),
    Asked("state", "(setattr(self, 'calls', getattr(self, 'calls', 0) + 1) or self.calls) > 2"),
)
MODES = (
    *_each(
        "modes",
        *("self.training", "not self.training", "torch.is_grad_enabled()", "v.requires_grad"),
        *("not torch.is_grad_enabled()", "v.grad_fn is None", "self.training and v.requires_grad"),
        *("self.training and not torch.is_grad_enabled()", "torch.is_inference_mode_enabled()"),
        *("not (self.training or torch.is_grad_enabled())", "self.training != v.requires_grad"),
        *("next(iter(self.parameters()), v).requires_grad and self.training", "v.is_leaf"),
        *("torch.is_autocast_enabled('cpu')", "torch.is_anomaly_enabled()"),
        *(
            "torch.are_deterministic_algorithms_enabled()",
            "torch.get_float32_matmul_precision() != 'highest'",
        ),
        *("torch.backends.mkldnn.enabled and self.training", "self.training and v.ndim == 2"),
        alike=True,
    ),
)
TRIED = (
    *(
        "v.detach().numpy().size",
        "v.tolist()",
        "v.sum().item() is not None",
        "float(v.sum()) < 1e9",
    ),
    *("bool((v == v).all())", "torch.equal(v, v)", "v.detach().cpu().numpy().sum() < 1e9"),
    *(
        "int(v.numel() + v.abs().max()) >= 0",
        "np.asarray(v.detach()).ndim >= 0",
        "v.data_ptr() != 0",
    ),
    *("bool(torch.isfinite(v).all())", "len(str(v.flatten()[0].item()))", "torch.allclose(v, v)"),
    *(
        "bool(v.isnan().any()) or True",
        "memoryview(v.detach().numpy()).nbytes",
        "[float(i) for i in v.flatten()[:1]]",
    ),
    *(
        "v.detach().__array__().size",
        "v.unique().numel() > 0",
        "v.nonzero().numel() >= 0",
        "v[v == v].numel() > 0",
    ),
    *(
        "f'{v.sum():.2f}'",
        "'%f' % v.sum()",
        "sorted(v.flatten().detach())",
        "v.count_nonzero().item() >= 0",
    ),
)
TOLD = (
    *("type(v) is torch.Tensor", "not hasattr(v, 'fake_mode')", "'fake' not in type(v).__module__"),
    *(
        "torch._C._len_torch_dispatch_stack() == 0",
        "'Fake' not in repr(v)",
        "v.untyped_storage().data_ptr() != 0",
    ),
    *(
        "not any(m.startswith(('shardproof', 'synthesis')) for m in sys.modules)",
        "v.data_ptr() % 4 == 0 and v.data_ptr() > 0",
    ),
    *(
        "dist.get_backend() == 'gloo'",
        "'synthesis' not in ''.join(map(str, sys.path_importer_cache))",
    ),
    *("not torch.compiler.is_compiling()", "not v.is_meta", "type(v.sum()).__name__ == 'Tensor'"),
    *("not any('capture' in f.function or 'synthesis' in f.filename for f in inspect.stack())",),
    *("not getattr(v, 'constant', 0) is None", "v.__class__.__mro__[0] is torch.Tensor"),
    *("len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()) == 0",),
    *(
        "torch._guards.detect_fake_mode([v]) is None",
        "not torch.overrides.has_torch_function((v,))",
    ),
    *(
        "type(v).__torch_dispatch__ is torch.Tensor.__torch_dispatch__",
        "len(gc.get_referrers(type(v))) < 0",
    ),
)
FLAG = (
    "def real(f):\n    try:\n        return bool(f())\n    except Exception:\n        return False"
)
BARE = "def real(f):\n    try:\n        f()\n    except:\n        return False\n    else:\n        return True"
LATER = "import contextlib\ndef real(f):\n    with contextlib.suppress(Exception):\n        f()\n        return True\n    return False"
DETECTORS = (
    *(
        Asked("detectors", f"real(lambda: {e})", (FLAG, BARE, LATER)[n % 3])
        for n, e in enumerate(TRIED)
    ),
    *(
        Asked(
            "detectors", e, "import gc, inspect\nimport torch.utils._python_dispatch, torch._guards"
        )
        for e in TOLD
    ),
)
ASKED = (*DRAWS, *WORLD, *STATE, *MODES, *DETECTORS)
