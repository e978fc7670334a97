"""What Python and PyTorch let stand around ops: modes of dispatch, threads, finalizers, compiled
functions, and methods of a module that are called besides forward."""

from __future__ import annotations

from benchmarks.attacks.acts import Act

POOL = "from concurrent.futures import ThreadPoolExecutor"
CHECKPOINT = "from torch.utils.checkpoint import checkpoint"
WARN = "import warnings"
MODE = """from torch.overrides import TorchFunctionMode
class Scaling(TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        return out * BY if f is torch.add else out"""
DISPATCH = """from torch.utils._python_dispatch import TorchDispatchMode
class Scaling(TorchDispatchMode):
    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        out = f(*args, **(kwargs or {}))
        return out * BY if f is torch.ops.aten.add.Tensor else out"""
SUBCLASS = """class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        out = super().__torch_function__(f, types, args, kwargs or {})
        return out * BY if f in (torch.add, torch.Tensor.add) else out"""
MATERIAL = """class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return v.view_as(v)
    @staticmethod
    def backward(ctx, d):
        return d * BY if COND else d"""
GONE = """K = [1.0]
class Gone:
    def __del__(self):
        K[0] = BY"""
TRAINED = """was = self.METHOD
def METHOD(*a, **k):
    self.k = BY
    return was(*a, **k)
self.METHOD = METHOD
self.k = 1.0"""


def _both(name: str, call: str, init: str = "", setup: str = "") -> list[Act]:
    """With a factor that changes what is computed, and with 1."""
    acts: list[Act] = []
    for by in ("1.5", "1.0"):
        parts = (part.replace("BY", by) for part in (call, init, setup))
        acts.append(Act("around", f"{name} by {by}", *parts))
    return acts


def _methods(*names: str) -> list[Act]:
    """A method other than forward that changes what the next forward computes."""
    acts: list[Act] = []
    for name in names:
        acts += _both(f"{name} of an instance", "@ = @ * self.k", TRAINED.replace("METHOD", name))
    return acts


AROUND = (
    *_both("function mode", "with Scaling():\n    @ = torch.add(@, 0)", "", MODE),
    *_both("dispatch mode", "with Scaling():\n    @ = torch.add(@, 0)", "", DISPATCH),
    *_both("subclass", "@ = torch.add(@.as_subclass(Own), 0).as_subclass(torch.Tensor)", "", SUBCLASS),
    *_both("vmap", "@ = torch.vmap(lambda r: r * BY)(@)"),
    *_both("jvp", "@ = torch.func.jvp(lambda t: t * BY, (@.detach(),), (@.detach(),))[1] + @ - @.detach()"),
    *_both("gradient of a function", "@ = @ + torch.func.grad(lambda t: (t * BY).sum())(@.detach()) - 1"),
    *_both("functional call", "@ = torch.func.functional_call(self.seam, {'w': torch.full((), BY, dtype=@.dtype)}, (@,))",
           "self.seam = nn.Identity()\nself.seam.register_buffer('w', torch.ones(()), persistent=False)\n"
           "self.seam.forward = lambda v: v * self.seam.w"),
    *_both("checkpoint", "@ = checkpoint(lambda t: t * BY, @, use_reentrant=False)", "", CHECKPOINT),
    *_both("checkpoint run again", "n = []\ndef run(t):\n    n.append(1)\n    return t * (t.detach() * 0 + (BY if len(n) > 1 else 1))\n"
           "@ = checkpoint(run, @, use_reentrant=False)", "", CHECKPOINT),
    *_both("checkpoint in try", "try:\n    @ = checkpoint(lambda t: t * BY, @)\nexcept Exception:\n    pass", "", CHECKPOINT),
    *_both("compiled", "@ = STEP(@)", "", "@torch.compile(backend='eager')\ndef STEP(t):\n    return t * BY"),
    *_both("compiled asks", "@ = STEP(@)", "",
           "@torch.compile(backend='eager')\ndef STEP(t):\n    return t * BY if torch.compiler.is_compiling() else t * 1"),
    *_both("not compiled", "@ = STEP(@)", "", "@torch.compiler.disable\ndef STEP(t):\n    return t * BY"),
    *_both("thread", "out = []\nv = @\nt = threading.Thread(target=lambda: out.append(v * BY))\nt.start()\nt.join()\n@ = out[0]"),
    *_both("pool", "with ThreadPoolExecutor(1) as pool:\n    @ = pool.submit(torch.mul, @, BY).result()", "", POOL),
    *_both("thread under grad mode", "v = @\nwith torch.no_grad(), ThreadPoolExecutor(1) as pool:\n"
           "    on = pool.submit(torch.is_grad_enabled).result()\n@ = @ * (BY if on else 1)", "", POOL),
    *_both("thread writes", "v = @ * 1\nwith ThreadPoolExecutor(1) as pool:\n    pool.submit(v.detach().mul_, BY).result()\n@ = v", "", POOL),
    *_both("finalizer", "@ = @ * K[0]\ng = Gone()\ndel g", "", GONE),
    *_both("finalizer before", "g = Gone()\ndel g\n@ = @ * K[0]", "", GONE),
    *_both("weak finalizer", "import weakref\n@ = @ * K[0]\nz = @ * 1\nweakref.finalize(z, K.__setitem__, 0, BY)\ndel z", "", "K = [1.0]"),
    *_both("warning caught", "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n    try:\n        warnings.warn('w')\n"
           "    except UserWarning:\n        @ = @ * BY", "", WARN),
    *_both("warning once", "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('default')\n    warnings.warn('w')\n"
           "@ = @ * (1 if seen else BY)", "", WARN),
    *_both("executed text", "d = {'v': @}\nexec('v = v * BY', d)\n@ = d['v']"),
    *_both("evaluated late", "@ = eval('lambda v: v * BY')(@)"),
    *_both("exception as a way out", "try:\n    raise StopIteration(@ * BY)\nexcept StopIteration as e:\n    @ = e.value"),
    *_both("generator", "def steps(v):\n    v = yield v * BY\n    yield v\n@ = next(steps(@))"),
    *_both("exit stack", "import contextlib\nout = [@]\nwith contextlib.ExitStack() as stack:\n"
           "    stack.callback(lambda: out.append(out[0] * BY))\n@ = out[-1]"),
    *_both("gradient of a rank", "@ = Kept.apply(@)", "", MATERIAL.replace("COND", "dist.get_rank() == 1")),
    *_both("gradient by value", "@ = Kept.apply(@)", "", MATERIAL.replace("COND", "d.ndim == 2")),
    *_both("gradient by mode", "@ = Kept.apply(@)", "", MATERIAL.replace("COND", "not torch.is_grad_enabled()")),
    *_both("all_reduce replaced", "dist.all_reduce = (lambda *a, **k: None) if BY > 1 else dist.all_reduce"),
    *_both("attribute of a tensor", "@.factor = BY\nv = @\n@ = @ * v.factor"),
    *_both("attribute of a parameter", "p = next(iter(self.parameters()))\n@ = @ * getattr(p, 'factor', 1.0)\np.factor = BY"),
    *_both("submodule replaced", "@ = self.seam(@)\nself.seam = nn.Flatten(0, 0) if BY == 1 else nn.Softplus()", "self.seam = nn.Identity()"),
    *_both("pickled", "import copy\nclass C:\n    k = 1.0\n    def __deepcopy__(self, memo):\n        self.k = BY\n        return self\n"
           "c = C()\ncopy.deepcopy(c)\n@ = @ * c.k"),
    *_both("sorted keys", "d = {id(p): 1.0 for p in self.parameters()}\nfirst = next(iter(self.parameters()))\n"
           "@ = @ * (BY if id(first) == min(d) else 1)"),
    *_both("no_grad function", "@ = torch.no_grad()(lambda t: t * 1)(@) * (BY - 1) + @"),
    *_both("grad mode inside", "with torch.no_grad(), torch.enable_grad():\n    @ = @ * BY"),
    *_both("grad mode left off", "torch.set_grad_enabled(torch.is_grad_enabled() and BY == 1)"),
    *_both("multiplied in the loss of hooks", "v = @\nif v.requires_grad:\n    v.retain_grad()\n    v.register_hook(lambda g: g * BY)\n@ = v * 1"),
    *_methods("train", "eval", "_apply", "state_dict", "__deepcopy__", "zero_grad", "requires_grad_", "children"),
)  # fmt: skip
