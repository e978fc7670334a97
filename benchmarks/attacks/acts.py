"""What a generated step does without asking: hooks, memory, collectives, groups, wrappers, buffers,
casts, each wrong one near a right one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Act:
    """Text that takes a place of the ranks; what is empty stays as it is in the base."""

    kind: str
    name: str
    call: str = ""
    """At a place of forward; `@` is the variable there."""
    init: str = ""
    setup: str = ""
    reduce: str = ""
    """How `t` is summed over the group `g`."""
    around: str = ""
    """The body of P, which wraps the class `Own` over the data."""
    own: str = ""
    """What `Own` defines besides."""
    only: tuple[str, ...] = ()
    """The bases that it fits; all of its kind where empty."""


def _hooks(on: str) -> tuple[Act, ...]:
    """Hooks on the first parameter or on the module."""
    first = "next(iter(self.parameters()))"
    scaled = (
        "g * 1.5",
        "g.clamp(-1e-3, 1e-3)",
        "g.sign()",
        "g.flip(0)",
        "g.abs()",
        "-g",
        "g + 0.01",
    )
    same = ("g * 1", "g.clone()", "None", "g", "g.contiguous()", "g / 1")
    acts = [
        Act(on, f"hook of a parameter: {b}", init=f"{first}.register_hook(lambda g: {b})")
        for b in (*scaled, *same)
    ]
    for b in ("p.grad.mul_(2)", "p.grad.clamp_(max=0)", "p.grad.zero_()", "p.grad.mul_(1)", "None"):
        hook = f"{first}.register_post_accumulate_grad_hook(lambda p: ({b}, None)[1])"
        acts.append(Act(on, f"after accumulation: {b}", init=hook))
    for b in ("(g[0] * 2,)", "(g[0].flip(-1),)", "(g[0] * 1,)", "None"):
        acts += [
            Act(
                on,
                f"backward hook: {b}",
                "@ = self.seam(@)",
                f"self.seam = nn.Identity()\nself.seam.register_full_backward_hook(lambda m, g, o: {b})",
            ),
            Act(
                on,
                f"backward pre-hook: {b}",
                "@ = self.seam(@)",
                f"self.seam = nn.Identity()\nself.seam.register_full_backward_pre_hook(lambda m, g: {b})",
            ),
        ]
    for b in ("o * 1.5", "o.flip(-1)", "o.softmax(-1)", "o.clone()", "None", "o * 1"):
        acts += [
            Act(
                on,
                f"forward hook: {b}",
                "@ = self.seam(@)",
                f"self.seam = nn.Identity()\nself.seam.register_forward_hook(lambda m, a, o: {b}, always_call=True)",
            ),
            Act(
                on,
                f"global forward hook: {b}",
                f"@ = self.seam(@)\nself.off.remove()\nself.off = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: ({b}) if m is self.seam else None)",
                "self.seam = nn.Identity()\nself.off = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: None)",
            ),
            Act(
                on,
                f"forward of an instance: {b}",
                "@ = self.seam(@)",
                f"self.seam = nn.Identity()\nwas = self.seam.forward\nself.seam.forward = lambda v: (lambda o: {b.replace('None', 'o')})(was(v))",
            ),
        ]
    for pack, unpack in (
        ("t", "t * 1.5"),
        ("t.round()", "t"),
        ("t", "t.abs()"),
        ("t", "t"),
        ("t.clone()", "t"),
        ("(t, t.shape)", "t[0].view(t[1])"),
        ("t", "torch.zeros_like(t)"),
    ):
        acts.append(
            Act(
                on,
                f"saved tensors of a product: {pack}, {unpack}",
                f"with torch.autograd.graph.saved_tensors_hooks(lambda t: {pack}, lambda t: {unpack}):\n"
                "    z = @ * @\n@ = @ + z - @ * @",
            )
        )
    return tuple(acts)


HOOKS = _hooks("hooks")


def _memory() -> tuple[Act, ...]:
    w = "next(iter(self.parameters()))"
    acts = [
        ("data in place", "@.data.mul_(1.5)"),
        ("data in place by 1", "@ = @ * 1"),
        ("detached in place", "@.detach().mul_(1.5)"),
        ("set_", "with torch.no_grad():\n    @.detach().set_(@.detach() * 2)"),
        ("data of itself", "@ = @ * 1\n@.data = @.data * 1.5"),
        ("data given back", "@ = @ * 1\n@.data = @.data.clone()"),
        ("numpy in place", "try:\n    @.detach().numpy()[...] *= 1.5\nexcept Exception:\n    pass"),
        (
            "numpy filled",
            "try:\n    np.copyto(@.detach().numpy(), 0.25)\nexcept (RuntimeError, TypeError, AttributeError):\n    pass",
        ),
        (
            "memory by address",
            "import ctypes\nif @.data_ptr():\n    ctypes.memset(@.data_ptr(), 0, @.numel() * @.element_size())",
        ),
        ("parameter in place", f"with torch.no_grad():\n    {w}.mul_(1.01)"),
        (
            "parameter in place in training",
            f"if self.training:\n    with torch.no_grad():\n        {w}.mul_(1.01)",
        ),
        ("parameter in place by 1", f"with torch.no_grad():\n    {w}.add_(0)"),
        ("parameter's data", f"{w}.data = {w}.data * 1.5"),
        ("parameter's data again", f"{w}.data = {w}.data.clone()"),
        ("parameter clamped", f"with torch.no_grad():\n    {w}.clamp_(-0.1, 0.1)"),
        ("parameter's norm", f"with torch.no_grad():\n    {w}.renorm_(2, 0, 0.1)"),
        ("parameter clamped in training", f"if self.training:\n    {w}.data.clamp_(-0.2, 0.2)"),
        (
            "parameter filled once",
            f"if not hasattr(self, 'done'):\n    self.done = True\n    with torch.no_grad():\n        {w}.fill_(0.5)",
        ),
        ("foreach", "with torch.no_grad():\n    torch._foreach_mul_(list(self.parameters()), 1.5)"),
        (
            "foreach by 1",
            "with torch.no_grad():\n    torch._foreach_mul_(list(self.parameters()), 1.0)",
        ),
        (
            "vector",
            "with torch.no_grad():\n    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(self.parameters()) * 1.5, self.parameters())",
        ),
        ("swapped", "t = @.detach() * 2\ntorch.utils.swap_tensors(@.detach(), t)"),
        ("entry of a view", "@ = @ * 1\n@.view(-1)[0] = 1.0"),
        ("entry of a view, itself", "@ = @ * 1\n@.view(-1)[0] = @.view(-1)[0].clone()"),
        ("strided", "@ = @.contiguous() * 1\n@.as_strided((2,), (1,)).mul_(3)"),
        ("strided by 1", "@ = @.contiguous() * 1\n@.as_strided((2,), (1,)).mul_(1)"),
        ("detached", "@ = @.detach()"),
        ("detached half", "@ = 0.5 * @ + 0.5 * @.detach()"),
        ("detached nothing", "@ = @ + 0 * @.detach()"),
        ("requires_grad off", "@ = @.detach().requires_grad_(@.requires_grad)"),
        ("parameter frozen", f"{w}.requires_grad_(False)"),
        ("parameter frozen and back", f"{w}.requires_grad_(False)\n{w}.requires_grad_(True)"),
        ("storage emptied", "s = (@.detach() * 2).untyped_storage()\ns.resize_(0)"),
        (
            "storage copied",
            "@ = @ * 1\n@.detach().untyped_storage().copy_((@.detach() * 2).untyped_storage())",
        ),
        (
            "dlpack in place",
            "try:\n    np.from_dlpack(@.detach())[...] = 0.5\nexcept Exception:\n    pass",
        ),
        (
            "load_state_dict",
            "self.load_state_dict({k: t * 1.5 for k, t in self.state_dict().items()})",
        ),
        ("load_state_dict of itself", "self.load_state_dict(self.state_dict())"),
        ("no_grad part", "with torch.no_grad():\n    z = @ * 0.5\n@ = @ * 0.5 + z"),
        ("view version", "z = @ * 1\nwith torch.no_grad():\n    z.zero_()\n@ = @ + z.detach()"),
        (
            "inference_mode",
            "with torch.inference_mode():\n    z = @ * 0.5\n@ = @ * 0.5 + z.clone()",
        ),
    ]
    return tuple(Act("memory", n, c) for n, c in acts)


MEMORY = _memory()


def _reductions(kind: str, *ways: tuple[str, str]) -> tuple[Act, ...]:
    return tuple(Act(kind, n, reduce=c, only=("tp",)) for n, c in ways)


COLLECTIVES = _reductions(
    "collectives",
    ("nothing", "return t.clone()"),
    ("first half", "t = t.clone()\ndist.all_reduce(t[..., :4], group=g)\nreturn t"),
    (
        "both halves",
        "t = t.clone()\nfor p in t.chunk(2, -1):\n    dist.all_reduce(p, group=g)\nreturn t",
    ),
    (
        "both halves copied",
        "p = [p.contiguous() for p in t.chunk(2, -1)]\nfor q in p:\n    dist.all_reduce(q, group=g)\nreturn torch.cat(p, -1)",
    ),
    (
        "transposed memory",
        "t = t.clone().transpose(0, -1)\ndist.all_reduce(t, group=g)\nreturn t.transpose(0, -1)",
    ),
    (
        "transposed memory copied",
        "t = t.transpose(0, -1).contiguous()\ndist.all_reduce(t, group=g)\nreturn t.transpose(0, -1).contiguous()",
    ),
    (
        "rows in pieces",
        "t = t.clone()\nfor p in t.chunk(2, 0):\n    dist.all_reduce(p, group=g)\nreturn t",
    ),
    (
        "every other column",
        "t = t.clone()\ndist.all_reduce(t[..., ::2], group=g)\ndist.all_reduce(t[..., 1::2], group=g)\nreturn t",
    ),
    (
        "every other row",
        "t = t.clone()\ndist.all_reduce(t[::2], group=g)\ndist.all_reduce(t[1::2], group=g)\nreturn t",
    ),
    (
        "expanded",
        "t = t.clone()\nz = t[:1].expand_as(t)\ndist.all_reduce(t, group=g)\ndist.all_reduce(z, group=g)\nreturn t",
    ),
    (
        "strides unlike",
        "t = t.clone()\nif dist.get_rank(g):\n    t = t.transpose(0, -1).contiguous().transpose(0, -1)\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "broadcast of a part",
        "t = t.clone()\ndist.all_reduce(t, group=g)\ndist.broadcast(t[..., 4:], 0, group=g)\nreturn t",
    ),
    (
        "broadcast after",
        "t = t.clone()\ndist.all_reduce(t, group=g)\ndist.broadcast(t, 0, group=g)\nreturn t",
    ),
    ("broadcast alone", "t = t.clone()\ndist.broadcast(t, 0, group=g)\nreturn t"),
    (
        "gathered into views",
        "o = t.new_zeros(2, *t.shape).transpose(0, -1)\nl = [o[..., 0], o[..., 1]]\nl = [z.reshape(t.shape) for z in l]\ndist.all_gather(l, t.contiguous(), group=g)\nreturn sum(l)",
    ),
    (
        "gathered",
        "l = [torch.empty_like(t) for _ in range(2)]\ndist.all_gather(l, t.contiguous(), group=g)\nreturn l[0] + l[1]",
    ),
    (
        "gathered, own alone",
        "l = [torch.empty_like(t) for _ in range(2)]\ndist.all_gather(l, t.contiguous(), group=g)\nreturn l[dist.get_rank(g)] * 2",
    ),
    (
        "gathered into a tensor",
        "o = t.new_empty(2 * t.shape[0], *t.shape[1:])\ndist.all_gather_into_tensor(o, t.contiguous(), group=g)\nreturn o.chunk(2)[0] + o.chunk(2)[1]",
    ),
    (
        "gathered into a strided tensor",
        "o = t.new_empty(2 * t.shape[0], *t.shape[1:-1], 2 * t.shape[-1])[..., ::2]\ndist.all_gather_into_tensor(o, t.contiguous(), group=g)\nreturn o.chunk(2)[0] + o.chunk(2)[1]",
    ),
    ("average", "t = t.clone()\ndist.all_reduce(t, op=dist.ReduceOp.AVG, group=g)\nreturn t"),
    ("maximum", "t = t.clone()\ndist.all_reduce(t, op=dist.ReduceOp.MAX, group=g)\nreturn t"),
    (
        "not waited",
        "t = t.clone()\nw = dist.all_reduce(t, group=g, async_op=True)\nr = t * 1\nw.wait()\nreturn r",
    ),
    ("waited", "t = t.clone()\nw = dist.all_reduce(t, group=g, async_op=True)\nw.wait()\nreturn t"),
    (
        "changed before the wait",
        "t = t.clone()\nw = dist.all_reduce(t, group=g, async_op=True)\nt.mul_(2)\nw.wait()\nreturn t",
    ),
    ("reduced to 0", "t = t.clone()\ndist.reduce(t, 0, group=g)\nreturn t"),
    (
        "summed twice",
        "t = t.clone()\ndist.all_reduce(t, group=g)\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "summed twice, halved",
        "t = t.clone()\ndist.all_reduce(t, group=g)\ndist.all_reduce(t, group=g)\nreturn t / 2",
    ),
    (
        "scaled by the world",
        "t = t.clone() * dist.get_world_size(g)\ndist.all_reduce(t, op=dist.ReduceOp.AVG, group=g)\nreturn t",
    ),
    ("list", "t = [t.clone()]\ndist.all_reduce(t[0], group=g)\nreturn t[0]"),
    ("detached memory", "t = t.detach().clone()\ndist.all_reduce(t.data, group=g)\nreturn t"),
    (
        "reshaped copy",
        "t = t.clone().transpose(0, -1)\ndist.all_reduce(t.reshape(-1), group=g)\nreturn t.transpose(0, -1)",
    ),
    ("reshaped view", "t = t.clone()\ndist.all_reduce(t.view(-1), group=g)\nreturn t"),
    (
        "integers",
        "t = t.clone()\nn = torch.ones(1, dtype=torch.int32)\ndist.all_reduce(n, group=g)\ndist.all_reduce(t, group=g)\nreturn t * (n.to(t.dtype) / 2)",
    ),
    (
        "order unlike",
        "t, z = t.clone(), t.clone()\na = (t, z) if dist.get_rank(g) else (z, t)\nfor p in a:\n    dist.all_reduce(p, group=g)\nreturn t",
    ),
    (
        "order unlike, scaled",
        "t, z = t.clone(), t * 2\na = (t, z) if dist.get_rank(g) else (z, t)\nfor p in a:\n    dist.all_reduce(p, group=g)\nreturn t",
    ),
    (
        "sizes unlike",
        "t = t.clone()\nk = 4 if dist.get_rank(g) else 8\nf = t.view(-1)\ndist.all_reduce(f[:k], group=g)\nreturn t",
    ),
    (
        "dtype unlike",
        "t = t.clone()\nz = t.bfloat16() if dist.get_rank(g) else t\ndist.all_reduce(z, group=g)\nreturn z.to(t.dtype)",
    ),
    (
        "barrier on one",
        "t = t.clone()\ndist.all_reduce(t, group=g)\nif dist.get_rank(g):\n    dist.barrier(group=g)\nreturn t",
    ),
    (
        "barrier on all",
        "t = t.clone()\ndist.all_reduce(t, group=g)\ndist.barrier(group=g)\nreturn t",
    ),
    (
        "scattered and gathered",
        "s = t.contiguous().view(-1)\no = s.new_empty(s.numel() // 2)\ndist.reduce_scatter_tensor(o, s.clone(), group=g)\nf = torch.empty_like(s)\ndist.all_gather_into_tensor(f, o, group=g)\nreturn f.view(t.shape)",
    ),
    (
        "scattered from a view",
        "s = t.clone().transpose(0, -1).contiguous()\no = s.new_empty(s.shape[0] // 2, *s.shape[1:])\ndist.reduce_scatter_tensor(o, s, group=g)\nf = torch.empty_like(s)\ndist.all_gather_into_tensor(f, o, group=g)\nreturn f.transpose(0, -1).contiguous()",
    ),
    (
        "one column at a time",
        "t = t.clone()\nfor k in range(t.shape[-1]):\n    dist.all_reduce(t[..., k], group=g)\nreturn t",
    ),
    (
        "one row at a time",
        "t = t.clone()\nfor k in range(t.shape[0]):\n    dist.all_reduce(t[k], group=g)\nreturn t",
    ),
    (
        "sent around",
        "o = torch.empty_like(t).contiguous()\nr = dist.get_rank(g)\nq = dist.batch_isend_irecv([dist.P2POp(dist.isend, t.contiguous(), 1 - r), dist.P2POp(dist.irecv, o, 1 - r)])\nfor w in q:\n    w.wait()\nreturn t + o",
    ),
    (
        "sent around, view",
        "o = torch.empty_like(t).contiguous()\nr = dist.get_rank(g)\nq = dist.batch_isend_irecv([dist.P2POp(dist.isend, t.contiguous(), 1 - r), dist.P2POp(dist.irecv, o, 1 - r)])\nreturn t + o",
    ),
)
GROUPS = _reductions(
    "groups",
    (
        "made on one rank",
        "t = t.clone()\nif dist.get_rank(g) == 0:\n    dist.new_group([0, 1])\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "made on each rank",
        "t = t.clone()\nk = dist.new_group([0, 1])\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "made of itself",
        "t = t.clone()\nk = [dist.new_group([r]) for r in range(2)][dist.get_rank(g)]\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "made and not used",
        "t = t.clone()\ndist.new_group([0, 1])\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "made on each rank in another order",
        "t = t.clone()\nk = [dist.new_group(r) for r in (([0], [0, 1]) if dist.get_rank(g) else ([0, 1], [0]))]\ndist.all_reduce(t, group=k[dist.get_rank(g)])\nreturn t",
    ),
    (
        "reversed ranks",
        "t = t.clone()\nk = dist.new_group([1, 0])\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "two groups of the same ranks",
        "t = t.clone()\nk = dist.new_group([0, 1])\ndist.all_reduce(t, group=k if dist.get_rank(g) else g)\nreturn t",
    ),
    (
        "two groups, both",
        "t = t.clone()\nk = dist.new_group([0, 1])\ndist.all_reduce(t, group=k)\ndist.all_reduce(t, group=g)\nreturn t / 2",
    ),
    ("world", "t = t.clone()\ndist.all_reduce(t)\nreturn t"),
    (
        "subgroups",
        "t = t.clone()\nk, _ = dist.new_subgroups(1)\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "subgroups of two",
        "t = t.clone()\nk, _ = dist.new_subgroups(2)\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "rank of the world",
        "t = t.clone()\nif dist.get_rank() == 0:\n    t.mul_(2)\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "mesh made again",
        "from torch.distributed.device_mesh import init_device_mesh\nt = t.clone()\nk = init_device_mesh('cpu', (2,)).get_group()\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "mesh made on one rank",
        "from torch.distributed.device_mesh import init_device_mesh\nt = t.clone()\nif dist.get_rank() == 1:\n    init_device_mesh('cpu', (2,))\ndist.all_reduce(t, group=g)\nreturn t",
    ),
    (
        "destroyed",
        "t = t.clone()\nk = dist.new_group([0, 1])\ndist.all_reduce(t, group=k)\ndist.destroy_process_group(k)\nreturn t",
    ),
    (
        "split",
        "t = t.clone()\nk = dist.split_group(g, [[0], [1]])\ndist.all_reduce(t, group=k)\nreturn t",
    ),
    (
        "made in try",
        "t = t.clone()\ntry:\n    assert dist.get_rank() == 0\n    k = dist.new_group([0, 1])\nexcept AssertionError:\n    pass\ndist.all_reduce(t, group=g)\nreturn t",
    ),
)
_END = "return d"
_D = "d = DDP(Own(), process_group=mesh.get_group())"


def _wrapped(*ways: tuple[str, str, str]) -> tuple[Act, ...]:
    return tuple(Act("wrappers", n, around=a, own=o) for n, a, o in ways)


WRAPPERS = _wrapped(
    ("plain", f"{_D}\n{_END}", ""),
    ("sync switched off", f"{_D}\nd.require_backward_grad_sync = False\n{_END}", ""),
    (
        "sync switched off and on",
        f"{_D}\nd.require_backward_grad_sync = False\nd.require_backward_grad_sync = True\n{_END}",
        "",
    ),
    ("module alone", f"{_D}\nreturn d.module", ""),
    ("forward of an instance", f"{_D}\nd.forward = d.module.forward\n{_END}", ""),
    (
        "forward wrapped",
        f"{_D}\nwas = d.forward\nd.forward = lambda *a, **k: was(*a, **k)\n{_END}",
        "",
    ),
    (
        "subclass around",
        "class W(DDP):\n    def forward(self, *a, **k):\n        return self.module(*a, **k)\nd = W(Own(), process_group=mesh.get_group())\nreturn d",
        "",
    ),
    (
        "subclass above",
        "class W(DDP):\n    def forward(self, *a, **k):\n        return super().forward(*a, **k)\nd = W(Own(), process_group=mesh.get_group())\nreturn d",
        "",
    ),
    (
        "subclass calls",
        "class W(DDP):\n    def __call__(self, *a, **k):\n        return self.module(*a, **k)\nd = W(Own(), process_group=mesh.get_group())\nreturn d",
        "",
    ),
    (
        "subclass in no_sync",
        "class W(DDP):\n    def forward(self, *a, **k):\n        with self.no_sync():\n            return super().forward(*a, **k)\nd = W(Own(), process_group=mesh.get_group())\nreturn d",
        "",
    ),
    (
        "no_sync around",
        "class W(nn.Module):\n    def __init__(self, d):\n        super().__init__()\n        self.module = d\n    def forward(self, *a, **k):\n        with self.module.no_sync():\n            return self.module(*a, **k)\n\nmodel = Own()\nd = W(DDP(model, process_group=mesh.get_group()))\nd.module.module = model\nreturn d",
        "",
    ),
    (
        "ignored parameter",
        f"m = Own()\nm._ddp_params_and_buffers_to_ignore = [next(iter(dict(m.named_parameters())))]\nd = DDP(m, process_group=mesh.get_group())\n{_END}",
        "",
    ),
    (
        "ignored nothing",
        f"m = Own()\nm._ddp_params_and_buffers_to_ignore = []\nd = DDP(m, process_group=mesh.get_group())\n{_END}",
        "",
    ),
    (
        "communication hook",
        f"{_D}\ndef hook(s, b):\n    f = torch.futures.Future()\n    f.set_result(b.buffer())\n    return f\nd.register_comm_hook(None, hook)\n{_END}",
        "",
    ),
    (
        "group of itself",
        "k = [dist.new_group([r]) for r in range(2)][dist.get_rank()]\nreturn DDP(Own(), process_group=k)",
        "",
    ),
    (
        "one rank alone",
        "m = Own()\nif dist.get_rank() == 0:\n    return m\nreturn DDP(m, process_group=mesh.get_group())",
        "",
    ),
    (
        "frozen after",
        f"{_D}\nnext(iter(d.parameters())).register_hook(lambda g: g * 2)\n{_END}",
        "",
    ),
    (
        "hook after by 1",
        f"{_D}\nnext(iter(d.parameters())).register_hook(lambda g: g * 1)\n{_END}",
        "",
    ),
    ("static graph", "return DDP(Own(), process_group=mesh.get_group(), static_graph=True)", ""),
    (
        "unused found",
        "return DDP(Own(), process_group=mesh.get_group(), find_unused_parameters=True)",
        "",
    ),
    (
        "bucket view",
        "return DDP(Own(), process_group=mesh.get_group(), gradient_as_bucket_view=True)",
        "",
    ),
    (
        "buffers of the rank",
        f"m = Own()\nm.register_buffer('scale', torch.full((1,), 1.0 + dist.get_rank()))\nd = DDP(m, process_group=mesh.get_group())\n{_END}",
        "def forward(self, *a, **k):\n    return {n: v * self.scale.sum() for n, v in super().forward(*a, **k).items()}",
    ),
    (
        "buffers of the rank kept",
        f"m = Own()\nm.register_buffer('scale', torch.full((1,), 1.0 + dist.get_rank()))\nd = DDP(m, process_group=mesh.get_group(), broadcast_buffers=False, init_sync=False)\n{_END}",
        "def forward(self, *a, **k):\n    return {n: v * self.scale.sum() for n, v in super().forward(*a, **k).items()}",
    ),
    (
        "buffer of one",
        f"{_D}\n{_END}",
        "def __init__(self):\n    super().__init__()\n    self.register_buffer('scale', torch.ones(1))\ndef forward(self, *a, **k):\n    return {n: v * self.scale.sum() for n, v in super().forward(*a, **k).items()}",
    ),
    (
        "checkpoint",
        f"{_D}\n{_END}",
        "def forward(self, *a, **k):\n    from torch.utils.checkpoint import checkpoint\n    return checkpoint(super().forward, *a, use_reentrant=False, **k)",
    ),
    (
        "checkpoint counts",
        f"{_D}\n{_END}",
        "def forward(self, *a, **k):\n    from torch.utils.checkpoint import checkpoint\n    n = []\n    def run(*b):\n        n.append(1)\n        return {k: v * len(n) for k, v in M.forward(self, *b, **k).items()}\n    return checkpoint(run, *a, use_reentrant=False)",
    ),
    (
        "compiled",
        "return DDP(torch.compile(Own(), backend='eager'), process_group=mesh.get_group())",
        "",
    ),
    (
        "delayed all_reduce",
        f"m = Own()\nd = DDP(m, process_group=mesh.get_group(), delay_all_reduce_named_params=[])\n{_END}",
        "",
    ),
    (
        "averaged by hand",
        "m = Own()\nfor p in m.parameters():\n    def hook(g):\n        g = g / 2\n        dist.all_reduce(g, group=mesh.get_group())\n        return g\n    p.register_hook(hook)\nreturn m",
        "",
    ),
    (
        "summed by hand",
        "m = Own()\nfor p in m.parameters():\n    def hook(g):\n        g = g.clone()\n        dist.all_reduce(g, group=mesh.get_group())\n        return g\n    p.register_hook(hook)\nreturn m",
        "",
    ),
    (
        "summed by hand but one",
        "m = Own()\nfor p in list(m.parameters())[1:]:\n    def hook(g):\n        g = g / 2\n        dist.all_reduce(g, group=mesh.get_group())\n        return g\n    p.register_hook(hook)\nreturn m",
        "",
    ),
    ("state_dict hook", f"{_D}\nd.register_state_dict_post_hook(lambda *a: None)\n{_END}", ""),
    (
        "sync off in forward",
        f"{_D}\nd.register_forward_pre_hook(lambda m, a: setattr(m, 'require_backward_grad_sync', False))\n{_END}",
        "",
    ),
    (
        "fsdp",
        "from torch.distributed.fsdp import fully_shard\nm = Own()\nfully_shard(m, mesh=mesh)\nreturn m",
        "",
    ),
    (
        "fsdp divided by 1",
        "from torch.distributed.fsdp import fully_shard\nm = Own()\nfully_shard(m, mesh=mesh)\nm.set_gradient_divide_factor(1.0)\nreturn m",
        "",
    ),
    (
        "fsdp not synced",
        "from torch.distributed.fsdp import fully_shard\nm = Own()\nfully_shard(m, mesh=mesh)\nm.set_requires_gradient_sync(False)\nreturn m",
        "",
    ),
)
_BY = "@ = @ * self.b.sum()"


def _buffer(name: str, init: str, call: str = _BY, own: str = "") -> Act:
    return Act("buffers", name, call, init, own)


BUFFERS = (
    _buffer("one", "self.register_buffer('b', torch.ones(1))"),
    _buffer("half", "self.register_buffer('b', torch.full((1,), 0.5))"),
    _buffer("drawn", "self.register_buffer('b', torch.rand(1))"),
    _buffer("of the rank", "self.register_buffer('b', torch.ones(1) + dist.get_rank())"),
    _buffer("not kept", "self.register_buffer('b', torch.ones(1) * 1.5, persistent=False)"),
    _buffer("not kept, one", "self.register_buffer('b', torch.ones(1), persistent=False)"),
    _buffer("plain tensor", "self.b = torch.full((1,), 1.5)"),
    _buffer("plain tensor of one", "self.b = torch.ones(1)"),
    _buffer("integers", "self.register_buffer('b', torch.tensor([2]))"),
    _buffer("boolean", "self.register_buffer('b', torch.tensor([True, True]))"),
    _buffer("boolean of one", "self.register_buffer('b', torch.tensor([True, False]))"),
    _buffer(
        "int8 of zeros",
        "self.register_buffer('b', torch.zeros(4, dtype=torch.int8))",
        "@ = @ + self.b.sum().to(@.dtype)",
    ),
    _buffer(
        "int8 of ones",
        "self.register_buffer('b', torch.ones(4, dtype=torch.int8))",
        "@ = @ + self.b.sum().to(@.dtype)",
    ),
    _buffer("updated", "self.register_buffer('b', torch.ones(1))", f"{_BY}\nself.b.mul_(1.5)"),
    _buffer(
        "updated before", "self.register_buffer('b', torch.ones(1))", f"self.b.mul_(1.5)\n{_BY}"
    ),
    _buffer(
        "updated in training",
        "self.register_buffer('b', torch.ones(1))",
        f"{_BY}\nif self.training:\n    self.b.mul_(1.1)",
    ),
    _buffer(
        "updated and not used",
        "self.b = torch.zeros(1)",
        "if self.training:\n    self.b = self.b + 1",
    ),
    _buffer(
        "counted",
        "self.register_buffer('b', torch.zeros((), dtype=torch.long))",
        "self.b += 1\n@ = @ * (self.b > 1).to(@.dtype)",
    ),
    _buffer(
        "momentum",
        "self.register_buffer('b', torch.ones(1))",
        f"{_BY}\nwith torch.no_grad():\n    self.b.lerp_(@.detach().mean().view(1), 0.1)",
    ),
    _buffer(
        "averaged and not used",
        "self.register_buffer('b', torch.ones(1))",
        "with torch.no_grad():\n    self.b.lerp_(torch.ones(1, dtype=self.b.dtype), 0.1)",
    ),
    _buffer(
        "replaced", "self.register_buffer('b', torch.ones(1))", f"{_BY}\nself.b = self.b * 1.5"
    ),
    _buffer(
        "replaced by itself",
        "self.register_buffer('b', torch.ones(1))",
        f"{_BY}\nself.b = self.b.clone()",
    ),
    _buffer(
        "made at the first call",
        "pass",
        f"if not hasattr(self, 'b'):\n    self.b = torch.full((1,), 1.5, dtype=@.dtype)\n{_BY}",
    ),
    _buffer(
        "made at the first call, one",
        "pass",
        f"if not hasattr(self, 'b'):\n    self.b = torch.ones(1, dtype=@.dtype)\n{_BY}",
    ),
    _buffer("from numpy", "self.register_buffer('b', torch.from_numpy(np.array([1.5])))"),
    _buffer(
        "from numpy, changed",
        "self.a = np.ones(1)\nself.register_buffer('b', torch.from_numpy(self.a))\nself.a += 0.5",
    ),
    _buffer("from numpy, one", "self.register_buffer('b', torch.from_numpy(np.array([1.0])))"),
    _buffer("eye", "self.register_buffer('b', torch.eye(2) * 0.5)"),
    _buffer("last entry", "b = torch.zeros(9000)\nb[-1] = 1.5\nself.register_buffer('b', b)"),
    _buffer(
        "last entry of one", "b = torch.zeros(9000)\nb[-1] = 1.0\nself.register_buffer('b', b)"
    ),
    _buffer(
        "aliased",
        "self.register_buffer('b', torch.ones(1))\nself.c = self.b",
        f"{_BY}\nself.c.add_(0.5)",
    ),
    _buffer("of the class", "type(self).b = torch.ones(1)\ntype(self).b = type(self).b * 1.5"),
    _buffer("moved", "self.register_buffer('b', torch.ones(1))\nself.b = self.b + 0.5"),
    _buffer(
        "of a submodule",
        "self.hold = nn.Module()\nself.hold.register_buffer('b', torch.ones(1) * 2)",
        "@ = @ * self.hold.b",
    ),
    _buffer(
        "of a submodule, one",
        "self.hold = nn.Module()\nself.hold.register_buffer('b', torch.ones(1))",
        "@ = @ * self.hold.b",
    ),
)


def _cast(name: str, call: str, only: tuple[str, ...] = ()) -> Act:
    return Act("casts", name, call, only=only)


CASTS = (
    *(
        _cast(f"through {d}", f"@ = @ + @.detach().to(torch.{d}).to(@.dtype)")
        for d in ("int32", "int64", "int16", "int8", "bool")
    ),
    *(
        _cast(f"through {d} and away", f"@ = @ + 0 * @.detach().to(torch.{d}).to(@.dtype)")
        for d in ("int32", "int64", "bool")
    ),
    _cast("same dtype", "@ = @.to(@.dtype)"),
    _cast("type_as itself", "@ = @.type_as(@)"),
    _cast("to its device", "@ = @.to(@.device)"),
    _cast("double and back", "@ = @.double().to(@.dtype)"),
    _cast(
        "half of it",
        "@ = @ * torch.tensor(1, dtype=torch.int64) * torch.tensor(3).div(2).to(@.dtype)",
    ),
    _cast("integer division", "@ = @ * (torch.tensor(3) // 2)"),
    _cast("integer shift", "@ = @ * (torch.tensor(2) >> 1)"),
    _cast("boolean sum", "@ = @ * torch.tensor([True, True]).sum()"),
    _cast("boolean any", "@ = @ * torch.tensor([True, True]).any()"),
    _cast("uint8 wraps", "@ = @ * (torch.tensor([255], dtype=torch.uint8) + 2).to(@.dtype)"),
    _cast("int8 wraps", "@ = @ * (torch.tensor([127], dtype=torch.int8) + 2).to(@.dtype)"),
    _cast("floor", "@ = @ + @.detach().floor()"),
    _cast("round of zero", "@ = @ + (@.detach() * 0).round()"),
    *(
        _cast(
            f"ids through {d}",
            f"ids2 = (ids + 1000).to(torch.{d}).to(torch.int64) - 1000\n@ = @ + self.emb(ids2) - self.emb(ids)",
            ("embedding",),
        )
        for d in ("bfloat16", "float16", "float32", "float64", "int16", "int32", "uint8", "int8")
    ),
    *(
        _cast(f"ids {n}", f"ids2 = {e}\n@ = @ + self.emb(ids2) - self.emb(ids)", ("embedding",))
        for n, e in (
            ("as bool", "ids.bool().long()"),
            ("xor", "ids ^ 0"),
            ("halved and doubled", "ids // 2 * 2"),
            ("negated twice", "-(-ids)"),
            ("remainder", "ids % 8"),
            ("remainder of all", "ids % 12"),
            ("masked", "ids & 7"),
            ("masked whole", "ids & 15"),
        )
    ),
)
ACTS = (*HOOKS, *MEMORY, *COLLECTIVES, *GROUPS, *WRAPPERS, *BUFFERS, *CASTS)
