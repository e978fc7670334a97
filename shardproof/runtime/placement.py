"""What a patch needs and PyTorch lacks: styles, a loss over a split vocabulary, gradients.

A patch imports these, or with `--inline` has them pasted into the file. Reading a patch traces this
code like the patch itself: nothing here is trusted.
"""

# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# (PyTorch has no types for what is used here, and a pasted definition needs none.)

import copy
import inspect
import math
import textwrap
from collections import OrderedDict
from functools import partial
from itertools import chain
from types import MethodType
from weakref import WeakSet

import torch
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle
from torch.distributed.tensor.placement_types import _StridedShard
from torch.func import functional_call
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode


def checked_mesh(model, mesh, sizes):
    """`mesh`, or a new one of these sizes; one of other dims or sizes is refused."""
    if mesh is None:
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    found = list(zip(mesh.mesh_dim_names or (), mesh.shape, strict=False))
    if found != list(sizes.items()):
        raise ValueError(
            f"parallelize is proved for the mesh {sizes} and not for {dict(found) or mesh.shape}: "
            "run `shardproof parallelize` for that mesh"
        )
    return mesh


class ProductParallel(ColwiseParallel):
    """A module that multiplies by a weight of its own. Its code runs on DTensors.

    `splits` maps a parameter to the dim that is split.
    """

    def __init__(self, splits, input_layouts=None, output_layouts=None):
        layouts = output_layouts or Replicate()
        super().__init__(input_layouts=input_layouts, output_layouts=layouts)
        self.splits = splits

    def _apply(self, module, device_mesh):
        for path, dim in self.splits.items():
            owner, _, name = path.rpartition(".")
            held = module.get_submodule(owner)
            whole = getattr(held, name)
            param = distribute_tensor(whole, device_mesh, [Shard(dim)])
            held.register_parameter(name, nn.Parameter(param, whole.requires_grad))
        row = self.input_layouts == (Shard(-1),)
        takes = self.input_layouts if row else (Replicate(),)
        prepare = partial(self._prepare_input_fn, self.input_layouts, takes)
        finish = partial(self._prepare_output_fn, self.output_layouts, self.use_local_output)
        return distribute_module(module, device_mesh, None, prepare, finish)


def whole_input(x, mesh, placement):
    """`x` on every rank in full; each rank adds its share to the gradient of `x`."""
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, [placement], run_check=False)
    return x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


class FusedColwiseParallel(ParallelStyle):
    """ColwiseParallel for weights stacked in one Linear: each rank has a piece of each.

    `parts` is how many there are, or the rows of each, `(2, 64)` of two that follow. Where these
    are not alike, ranks store the rows in order, and gather them to use their pieces, and whole
    those that are `kept`. The bias stays whole.
    """

    def __init__(self, parts, kept=(), input_layouts=None):
        self.parts, self.kept = parts, kept
        self.input_layouts = input_layouts or Replicate()

    def _apply(self, module, device_mesh):
        parts, size, rank = self.parts, device_mesh.size(), device_mesh.get_local_rank()
        alike = isinstance(parts, int)
        split = _StridedShard(0, split_factor=parts) if alike else Shard(0)
        module.weight = nn.Parameter(distribute_tensor(module.weight, device_mesh, [split]))
        if module.bias is not None:
            module.bias = nn.Parameter(distribute_tensor(module.bias, device_mesh, [Replicate()]))

        counts = [] if alike else [n if isinstance(n, tuple) else (1, n) for n in parts]

        def own(param):
            whole = param.redistribute(placements=[Replicate()])
            whole = whole.to_local(grad_placements=[Partial()])
            pieces = list(whole.split([count * rows for count, rows in counts]))
            for i, (count, _) in enumerate(counts):
                if i not in self.kept:
                    apart = pieces[i].unflatten(0, (count, size, -1))
                    pieces[i] = apart[:, rank].flatten(0, 1)
            return pieces

        def forward(x):
            x = whole_input(x, device_mesh, self.input_layouts)
            if not alike:
                weights = own(module.weight)
                biases = own(module.bias) if module.bias is not None else [None] * len(parts)
                return torch.cat(list(map(F.linear, [x] * len(parts), weights, biases)), -1)
            bias = module.bias
            if bias is not None:
                bias = bias.to_local(grad_placements=[Partial()])
                bias = bias.view(parts, size, -1)[:, rank].flatten()
            return F.linear(x, module.weight.to_local(), bias)

        module.forward = forward
        return module


class FusedConv1DColwiseParallel(ParallelStyle):
    """ColwiseParallel for `parts` weights side by side in one Conv1D [in, out].

    Each rank has a piece of each. The bias stays whole; a rank uses its piece of every part.
    """

    def __init__(self, parts, input_layouts=None):
        self.parts = parts
        self.input_layouts = input_layouts or Replicate()

    def _apply(self, module, device_mesh):
        parts, size, rank = self.parts, device_mesh.size(), device_mesh.get_local_rank()
        split = _StridedShard(1, split_factor=parts)
        module.weight = nn.Parameter(distribute_tensor(module.weight, device_mesh, [split]))
        module.bias = nn.Parameter(distribute_tensor(module.bias, device_mesh, [Replicate()]))

        def forward(x):
            x = whole_input(x, device_mesh, self.input_layouts)
            bias = module.bias.to_local(grad_placements=[Partial()])
            bias = bias.view(parts, size, -1)[:, rank].flatten()
            return F.linear(x, module.weight.to_local().t(), bias)

        module.forward = forward
        return module


class KVHeadParallel(ParallelStyle):
    """Linear with fewer heads than ranks: whole on every rank, each rank computes one head.

    Ranks that share a head each add their share to its gradient.
    """

    def __init__(self, heads, input_layouts=None):
        self.heads = heads
        self.input_layouts = input_layouts or Replicate()

    def _apply(self, module, device_mesh):
        distribute_module(module, device_mesh)
        head = device_mesh.get_local_rank() * self.heads // device_mesh.size()

        def rows(param):
            size = param.shape[0] // self.heads
            return param.to_local(grad_placements=[Partial()]).narrow(0, head * size, size)

        def forward(x):
            x = whole_input(x, device_mesh, self.input_layouts)
            bias = None if module.bias is None else rows(module.bias)
            return F.linear(x, rows(module.weight), bias)

        module.forward = forward
        return module


class InnerParallel(ParallelStyle):
    """A module of which each rank has some inner units, as heads, or hidden units of every expert,
    added up on the way out.

    `splits` maps a parameter to the dim that is split, or to that and the equal parts stacked along
    it. Each rank uses the parameters in `whole` as they are, and adds its share of any other, a
    bias of what is added up.
    """

    def __init__(self, splits, whole=()):
        self.splits, self.whole = splits, whole

    def _apply(self, module, device_mesh):
        for name, dim in self.splits.items():
            dim, parts = dim if isinstance(dim, tuple) else (dim, 1)
            split = _StridedShard(dim, split_factor=parts) if parts > 1 else Shard(dim)
            param = distribute_tensor(getattr(module, name), device_mesh, [split])
            module.register_parameter(name, nn.Parameter(param))
        others = [n for n, _ in module.named_parameters(recurse=False) if n not in self.splits]
        for name in others:
            param = distribute_tensor(getattr(module, name), device_mesh, [Replicate()])
            module.register_parameter(name, nn.Parameter(param))

        def share(name):
            param = getattr(module, name).to_local(grad_placements=[Partial()])
            return param if name in self.whole else param / device_mesh.size()

        def whole(x):
            floats = isinstance(x, torch.Tensor) and x.is_floating_point()
            return whole_input(x, device_mesh, Replicate()) if floats else x

        def forward(*args, **kwargs):
            inner = copy.copy(module)
            del inner.forward
            local = {name: getattr(module, name).to_local() for name in self.splits}
            local |= {name: share(name) for name in others}
            named = {name: whole(x) for name, x in kwargs.items()}
            out = functional_call(inner, local, tuple(map(whole, args)), named)
            out = DTensor.from_local(out, device_mesh, [Partial()], run_check=False)
            return out.redistribute(placements=[Replicate()]).to_local()

        module.forward = forward
        return module


def share_of(x, mesh, dim=-1):
    """The piece of this rank, along a dim, of what all ranks have."""
    x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return x.redistribute(placements=[Shard(dim % x.ndim)]).to_local()


class ChannelParallel(ParallelStyle):
    """A convolution, a bag, or what works on each channel, on the channels of its rank.

    `splits` maps a parameter to the dim that is split, or to that and the equal parts that are
    stacked along it, of each of which a rank has a piece. A convolution of no groups gathers
    channels that are split. Buffers stay whole: each rank works on
    its piece of them, and what it writes there is gathered.
    """

    def __init__(self, splits, input_layouts=None, output_layouts=None):
        self.splits = splits
        self.input_layouts = input_layouts or Replicate()
        self.output_layouts = output_layouts or Replicate()

    def _apply(self, module, device_mesh):
        size, rank, splits = device_mesh.size(), device_mesh.get_local_rank(), self.splits
        for name, param in list(module.named_parameters(recurse=False)):
            dim, parts = splits.get(name, 0), 1
            if isinstance(dim, tuple):
                dim, parts = dim
            split = _StridedShard(dim, split_factor=parts) if parts > 1 else Shard(dim)
            split = split if name in splits else Replicate()
            placed = nn.Parameter(distribute_tensor(param, device_mesh, [split]))
            module.register_parameter(name, placed)
        inner, params = self._within(module, device_mesh)
        takes, gives = self.input_layouts, self.output_layouts
        for name in ("groups", "num_groups", "num_features"):
            if takes != Replicate() and getattr(module, name, 1) > 1:
                setattr(inner, name, getattr(module, name) // size)
        row = takes != Replicate() and gives == Replicate()
        between = takes != Replicate() and not row and getattr(module, "groups", 0) == 1
        buffers = module.named_buffers(recurse=False) if splits and not row else ()
        held = [name for name, buffer in buffers if buffer.ndim]

        def forward(x, *args, **kwargs):
            if splits and (takes == Replicate() or between) and x.is_floating_point():
                x = whole_input(x, device_mesh, takes)
            inner.training = module.training
            state = {name: getattr(module, name) for name in held}
            pieces = {name: buffer.chunk(size)[rank].clone() for name, buffer in state.items()}
            local = params()
            bias = local.get("bias")
            if row and bias is not None:
                local["bias"] = None
            out = functional_call(inner, local | pieces, (x, *args), kwargs)
            if module.training:
                for name, buffer in state.items():
                    buffer.copy_(funcol.all_gather_tensor(pieces[name], 0, device_mesh))
            if not splits or gives != Replicate():
                return out
            place = Partial() if row else Shard(1)
            out = DTensor.from_local(out, device_mesh, [place], run_check=False)
            out = out.redistribute(placements=[Replicate()]).to_local()
            return out + bias.view(-1, *[1] * (out.ndim - 2)) if row and bias is not None else out

        module.forward = forward
        return module

    def _within(self, module, device_mesh):
        """What runs on a rank, and what gives its parameters."""
        del device_mesh
        own = partial(module.named_parameters, recurse=False)
        return copy.copy(module), lambda: {name: param.to_local() for name, param in own()}


class MadeWeight(nn.Module):
    """The weight of a module that hooks or parametrizations work out of its parameters."""

    def __init__(self, module):
        super().__init__()
        self.module, self.hooks = module, list(module._forward_pre_hooks.values())

    def forward(self):
        for hook in self.hooks:
            hook(self.module, ())
        return self.module.weight


class MadeWeightParallel(ChannelParallel):
    """ChannelParallel for a weight that hooks or parametrizations work out of parameters.

    Each rank has a piece of these. Where it has one of each, along the same dim, it works out its
    piece of the weight from them; else it gathers them, and takes its piece of the whole weight.
    """

    def _within(self, module, device_mesh):
        names = {name for name, _ in module.named_parameters()} - {"bias"}
        for path in names:
            name, held = path.rpartition(".")[2], module.get_submodule(path.rpartition(".")[0])
            placed = Shard(self.splits[path]) if path in self.splits else Replicate()
            param = getattr(held, name)
            if not isinstance(param, DTensor):
                param = nn.Parameter(distribute_tensor(param, device_mesh, [placed]))
                held.register_parameter(name, param)
        dims = {self.splits.get(name) for name in names}
        dim = next(iter(dims - {None}))
        weight = MadeWeight(module)
        kind = parametrize.type_before_parametrizations(module)
        plain = kind.__new__(kind)
        plain.__dict__.update(module.__dict__)
        plain.__dict__.pop("weight", None)
        inside = {
            name: held for name, held in module.named_children() if name != "parametrizations"
        }
        plain._parameters, plain._modules = {"weight": None, "bias": None}, inside
        plain._forward_pre_hooks, module._forward_pre_hooks = OrderedDict(), OrderedDict()

        def local():
            held = dict(module.named_parameters())
            bias = held.pop("bias", None)
            used = [Replicate() if len(dims) > 1 else Shard(dim)]
            held = {n: p.redistribute(placements=used).to_local() for n, p in held.items()}
            made = functional_call(weight, {f"module.{n}": p for n, p in held.items()}, ())
            made = share_of(made, device_mesh, dim) if len(dims) > 1 else made
            return {"weight": made, "bias": None if bias is None else bias.to_local()}

        return plain, local


def gathered(x, mesh):
    """What the ranks have side by side along the last dim, for code that all of them run alike."""
    x = DTensor.from_local(x, mesh, [Shard(-1)], run_check=False)
    return x.redistribute(placements=[Replicate()]).to_local()


def lstm_step(given, hidden, h, c):
    """h and c [batch, units] after a step; `given` and `hidden` [batch, 4 units] of the gates."""
    i, f, g, o = (given + hidden).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(given, hidden, h, c):
    """h [batch, units] after a step; `given` and `hidden` [batch, 3 units] of the gates."""
    (r, z, n), (hr, hz, hn) = given.chunk(3, -1), hidden.chunk(3, -1)
    n = (n + hn * (r + hr).sigmoid()).tanh()
    return (h - n) * (z + hz).sigmoid() + n, c


class RecurrentParallel(ParallelStyle):
    """nn.LSTM or nn.GRU, or a cell of one, of whose hidden units each rank has a share, and so of
    every gate.

    The hidden state is gathered at each step.
    """

    def _apply(self, module, device_mesh):
        lstm = isinstance(module, (nn.LSTM, nn.LSTMCell))
        split = _StridedShard(0, split_factor=4 if lstm else 3)
        for name, param in list(module.named_parameters()):
            setattr(module, name, nn.Parameter(distribute_tensor(param, device_mesh, [split])))

        def run(x, end, h, c):
            names = [f"{name}{end}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            held = [getattr(module, name, None) for name in names]
            wi, wh, bi, bh = [None if p is None else p.to_local() for p in held]
            given = F.linear(whole_input(x, device_mesh, Replicate()), wi, bi).unbind(0)
            before = whole_input(h, device_mesh, Replicate())
            h, c = share_of(h, device_mesh), share_of(c, device_mesh)
            found = {}
            steps = range(len(given))
            step = lstm_step if lstm else gru_step
            for at in reversed(steps) if end.endswith("reverse") else steps:
                if found:
                    before = whole_input(h, device_mesh, Shard(h.ndim - 1))
                h, c = step(given[at], F.linear(before, wh, bh), h, c)
                found[at] = h
            return torch.stack([found[at] for at in steps]), h, c

        def forward(x, state=None):
            x = x.transpose(0, 1) if module.batch_first else x
            ends = ("", "_reverse") if module.bidirectional else ("",)
            layers = int(module.num_layers)
            shape = layers * len(ends), x.size(1), module.hidden_size
            state = x.new_zeros(shape) if state is None else state
            hs, cs = state if isinstance(state, tuple) else (state, torch.zeros_like(state))
            last = []
            for layer in range(layers):
                outs = []
                for end in ends:
                    k = len(last)
                    made = run(x, f"_l{layer}{end}", hs[k], cs[k])
                    out, *kept = (gathered(part, device_mesh) for part in made)
                    outs.append(out)
                    last.append(kept)
                x = torch.cat(outs, -1) if len(outs) > 1 else outs[0]
                if layer < layers - 1:
                    x = F.dropout(x, module.dropout, module.training)
            h, c = (torch.stack(kept) for kept in zip(*last, strict=True))
            return x.transpose(0, 1) if module.batch_first else x, (h, c) if lstm else h

        def cell(x, state=None):
            zeros = x.new_zeros(*x.shape[:-1], module.hidden_size)
            state = zeros if state is None else state
            h, c = state if isinstance(state, tuple) else (state, zeros)
            _, h, c = run(x.unsqueeze(0), "", h, c)
            h = gathered(h, device_mesh)
            return (h, gathered(c, device_mesh)) if lstm else h

        module.forward = cell if isinstance(module, nn.RNNCellBase) else forward
        return module


def read_masks(
    query,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    average_attn_weights=True,
    is_causal=False,
):
    """What a call of nn.MultiheadAttention says: a mask [1 or batch times heads, queries, keys] and
    one [batch, keys], added to scores, whether the weights are wanted, and whether the first is the
    causal one."""
    given = attn_mask, key_padding_mask
    if query.ndim < 3:
        raise ValueError("heads are split for inputs with a batch")
    if need_weights and not average_attn_weights:
        raise ValueError("heads are split: the weights of each are not returned")
    if is_causal and key_padding_mask is None and not need_weights:
        return None, None, need_weights, True
    mask, padding = (
        query.new_zeros(m.shape).masked_fill(m, -math.inf)
        if m is not None and m.dtype == torch.bool
        else m
        for m in given
    )
    mask = mask.unsqueeze(0) if mask is not None and mask.ndim == 2 else mask
    return mask, padding, need_weights, False


def added_up(x, mesh):
    """The sum of what the ranks have, for code that all of them run alike."""
    x = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    return x.redistribute(placements=[Replicate()]).to_local()


class AttentionParallel(ParallelStyle):
    """nn.MultiheadAttention of whose heads each rank has a share. What they give is added up by an
    output projection that has a share of its inputs, else gathered before it."""

    def _apply(self, module, device_mesh):
        total, width = int(module.num_heads), int(module.head_dim)
        heads = total // device_mesh.size()
        split = _StridedShard(0, split_factor=3)
        for name, param in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(distribute_tensor(param, device_mesh, [split])))

        def project(ends, parts):
            sizes, found = [n * heads * width for n in parts], []
            held = (module.in_proj_weight, module.in_proj_bias)
            local = [[None] * 3 if p is None else p.to_local().split(sizes) for p in held]
            for x, n, weight, bias in zip(ends, parts, *local, strict=False):
                y = F.linear(whole_input(x, device_mesh, Replicate()), weight, bias)
                y = y.unflatten(-1, (n, -1)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
                found += [y[i].view(y.size(1), -1, width).transpose(0, 1) for i in range(n)]
            return found

        def projected(y):
            weight, bias = module.out_proj.weight, module.out_proj.bias
            if not isinstance(weight, DTensor):
                return F.linear(gathered(y, device_mesh), weight, bias)
            y = added_up(F.linear(y, weight.to_local()), device_mesh)
            return y if bias is None else y + bias.to_local()

        def forward(query, key, value, *masks, **more):
            mask, padding, wanted, causal = read_masks(query, *masks, **more)
            ends = (query, key, value)
            q, k, v = (x.transpose(0, 1) if module.batch_first else x for x in ends)
            steps, batch = q.shape[:2]
            parts = (1, 1, 1) if key is not value else (3,) if query is key else (1, 2)
            q, k, v = project((q, k, v), parts)
            drop, weights = module.dropout if module.training else 0.0, None
            if padding is not None:
                padding = padding.view(batch, 1, 1, -1).expand(-1, heads, -1, -1).flatten(0, 1)
                mask = padding if mask is None else mask + padding
            if wanted:
                q, k = q * math.sqrt(1 / width), k.transpose(-2, -1)
                scores = torch.bmm(q, k) if mask is None else torch.baddbmm(mask, q, k)
                share = F.dropout(scores.softmax(-1), drop)
                weights = share.view(batch, heads, steps, -1).sum(1) / total
                weights = added_up(weights, device_mesh)
                y = torch.bmm(share, v).transpose(0, 1)
            else:
                q, k, v = (z.view(batch, heads, -1, width) for z in (q, k, v))
                if mask is not None:
                    mask = mask.unflatten(0, (1, 1) if len(mask) == 1 else (batch, heads))
                y = F.scaled_dot_product_attention(q, k, v, mask, drop, causal).permute(2, 0, 1, 3)
            y = projected(y.reshape(steps * batch, -1)).view(steps, batch, -1)
            return y.transpose(0, 1) if module.batch_first else y, weights

        module.forward = forward
        return module


def vocab_parallel_cross_entropy(tp):
    """A mean cross entropy of logits [tokens, vocab / tp], the vocabulary split over the ranks."""

    def total(x):
        return DTensor.from_local(x, tp, [Partial()], run_check=False).full_tensor()

    def cross_entropy(logits, target, ignore_index=-100, reduction="mean"):
        peak = funcol.all_reduce(logits.detach().amax(-1), "max", tp)
        shifted = logits - peak.unsqueeze(-1)
        vocab = logits.size(-1)
        index = target - tp.get_local_rank() * vocab
        here = (index >= 0) & (index < vocab)
        picked = shifted.gather(-1, index.clamp(0, vocab - 1).unsqueeze(-1)).squeeze(-1)
        loss = total(shifted.exp().sum(-1)).log() - total(torch.where(here, picked, 0.0))
        counted = target != ignore_index
        summed = torch.where(counted, loss, 0.0).sum()
        return summed if reduction == "sum" else summed / counted.sum()

    return cross_entropy


def causal_lm_loss(tp, cross_entropy=None):
    """transformers' ForCausalLMLoss on logits [batch, tokens, vocab / tp]."""
    cross_entropy = cross_entropy or vocab_parallel_cross_entropy(tp)

    def loss(logits, labels, vocab_size, ignore_index=-100, shift_labels=None, **_):
        if shift_labels is None:
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        return cross_entropy(logits.flatten(0, -2), shift_labels.flatten(), ignore_index)

    return loss


class Exchanged(torch.autograd.Function):
    """all_to_all: each rank gives away the chunks of `x` along one dim, and joins those it gets, in
    the order of the ranks, along another. Backward sends them back."""

    @staticmethod
    def forward(ctx, x, split, join, mesh):
        ctx.back = join, split, mesh
        send = torch.stack(x.chunk(mesh.size(), split))
        got = funcol.wait_tensor(funcol.all_to_all_single(send, None, None, mesh))
        return torch.cat(got.unbind(), join)

    @staticmethod
    def backward(ctx, grad):
        return Exchanged.apply(grad, *ctx.back), None, None, None


def with_argument(args, kwargs, at, value):
    """The arguments of a call with another one at a position, or of a name."""
    if isinstance(at, str):
        return args, {**kwargs, at: value}
    return (*args[:at], value, *args[at + 1 :]), kwargs


def own_argument(module, tp, at, dim, group=0):
    """Have a module take its rank's share of an argument that all ranks make alike, along a dim: of
    each `group` of entries there, where these are one after the other."""

    def enter(module, args, kwargs):
        x = kwargs[at] if isinstance(at, str) else args[at]
        if group:
            own = share_of(x.unflatten(dim, (-1, group)), tp, dim + 1).flatten(dim, dim + 1)
        else:
            own = share_of(x, tp, dim)
        return with_argument(args, kwargs, at, own)

    module.register_forward_pre_hook(enter, with_kwargs=True)


class ContextParallel:
    """Activations of which each rank of `cp` has its rows of every sequence, and attention in which
    it has all rows of its heads (Jacobs et al. 2023, arXiv 2309.14509). The model is given whole
    sequences; activations are [batch, rows, width]."""

    def __init__(self, cp):
        self.cp, self.rows = cp, 0

    def split(self, block, at=0):
        """From this block on, a rank has its rows of the activation, the argument `at`."""

        def enter(module, args, kwargs):
            x = kwargs[at] if isinstance(at, str) else args[at]
            self.rows = x.size(1) // self.cp.size()
            own = x.narrow(1, self.cp.get_local_rank() * self.rows, self.rows)
            return with_argument(args, kwargs, at, own)

        block.register_forward_pre_hook(enter, with_kwargs=True)

    def attend(self, attention, projections, output, at=0):
        """`projections` maps those of queries, keys and values, which take the argument `at`, to
        the weights fused in them; `output` takes what attention gives. The code in between sees the
        shape of whole sequences."""
        size, held = self.cp.size(), {}

        def enter(module, args, kwargs):
            x = kwargs[at] if isinstance(at, str) else args[at]
            held["rows"] = x
            held["shape"] = x[:1, :1, :1].expand(x.size(0), x.size(1) * size, x.size(2))
            return with_argument(args, kwargs, at, held["shape"])

        def rows(module, args):
            if args[0] is not held["shape"]:
                raise ValueError(f"a projection of {type(attention).__name__} takes another input")
            return (held["rows"], *args[1:])

        def heads(module, args, y):
            parts = [Exchanged.apply(x, 2, 1, self.cp) for x in y.chunk(fused[module], -1)]
            return torch.cat(parts, -1)

        def back(module, args):
            return (Exchanged.apply(args[0], 1, 2, self.cp), *args[1:])

        attention.register_forward_pre_hook(enter, with_kwargs=True)
        attention.register_forward_hook(lambda module, args, y: held.clear())
        fused = {attention.get_submodule(name): parts for name, parts in projections.items()}
        for projection in fused:
            projection.register_forward_pre_hook(rows, prepend=True)
            projection.register_forward_hook(heads)
        attention.get_submodule(output).register_forward_pre_hook(back, prepend=True)

    def loss(self, cross_entropy=F.cross_entropy):
        """A mean cross entropy of this rank's rows of logits [batch * rows, classes] and the labels
        of whole sequences: the mean over the ranks is that over all labels that count."""

        def mean(logits, target, ignore_index=-100):
            ranks, rank = self.cp.size(), self.cp.get_local_rank()
            own = target.view(-1, ranks, self.rows)[:, rank].flatten()
            total = cross_entropy(logits, own, ignore_index=ignore_index, reduction="sum")
            return total * ranks / (target != ignore_index).sum()

        return mean

    def causal_lm_loss(self, tp=None):
        """transformers' ForCausalLMLoss on this rank's rows of logits, and labels of whole
        sequences; with `tp`, on its part of the vocabulary."""
        cross_entropy = F.cross_entropy if tp is None else vocab_parallel_cross_entropy(tp)
        return causal_lm_loss(tp, self.loss(cross_entropy))


def one_dim(mesh, *names):
    """These dims of a mesh as one."""
    return mesh[names]._flatten() if len(names) > 1 else mesh[names]


def dp_shard(ranks):
    """Chooses the dim that data parallelism splits: the first that divides over so many ranks and
    is not split part by part; None where there is no such dim.
    """

    def choose(param):
        placements = param.placements if isinstance(param, DTensor) else ()
        local = param.to_local() if isinstance(param, DTensor) else param
        in_parts = {p.dim for p in placements if isinstance(p, _StridedShard)}
        dims = (d for d in range(local.ndim) if d not in in_parts and local.shape[d] % ranks == 0)
        dim = next(dims, None)
        return None if dim is None else Shard(dim)

    return choose


def over_ranks(grad, dp, reduce):
    """The gradient of a parameter that all ranks of `dp` hold."""
    if not isinstance(grad, DTensor):
        return funcol.all_reduce(grad, reduce, dp)
    local = funcol.all_reduce(grad.to_local(), reduce, dp)
    return DTensor.from_local(local, grad.device_mesh, grad.placements, run_check=False)


def local_of(param):
    """The piece of this rank; a plain tensor is its own."""
    return param.to_local() if isinstance(param, DTensor) else param


def seen_as(view, held):
    """Code that reads a parameter of a module gets what `view` makes of it: `held` says which, by
    module. What lists parameters, an optimizer, a state dict or fully_shard, gets the DTensors."""
    kinds = {}

    def read(name):
        return property(lambda module: view(module._parameters[name]))

    for module, names in held.items():
        key = type(module), *names
        if key not in kinds:
            kind, body = type(module), {name: read(name) for name in names}
            if issubclass(kind, nn.RNNBase):  # it keeps them in a list too
                body["_flat_weights"] = property(
                    lambda module: [getattr(module, name) for name in module._flat_weights_names],
                    lambda module, weights: None,
                )
            body["__module__"] = kind.__module__
            kinds[key] = type(kind.__name__, (kind,), body)
        module.__class__ = kinds[key]


def place_each(model, choose):
    """Put the DTensor that `choose` makes of a parameter wherever that stands, unless it is None.
    Gives the names of those that were placed, by module."""
    made, held = {}, {}
    for path, module in model.named_modules():
        for name, param in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if param not in made:
                placed = choose(f"{path}.{name}" if path else name, param)
                placed = param if placed is None else nn.Parameter(placed, param.requires_grad)
                made[param] = placed
            if made[param] is not param:
                module.register_parameter(name, made[param])
                held.setdefault(module, []).append(name)
    return held


def place_loaded(model, state, prefix, *_):
    """Of tensors of one device that are loaded, a rank takes its pieces. PyTorch does so for one
    path of a module that a model has under several."""
    for name, param in model.named_parameters(remove_duplicate=False):
        whole = state.get(prefix + name)
        if isinstance(param, DTensor) and not isinstance(whole, DTensor | None):
            state[prefix + name] = distribute_tensor(whole, param.device_mesh, param.placements)


def local_on(tp, param):
    """The same, unless it is a piece that fully_shard made and asks for."""
    return local_of(param) if getattr(param, "device_mesh", tp) == tp else param


def replicate_rest(model, tp):
    """Parameters that no style placed become DTensors, whole on every rank of `tp`: all of a model
    are on one mesh then, as `clip_grad_norm_` needs them. Code sees the tensors that they were."""

    def choose(path, param):
        return None if isinstance(param, DTensor) else distribute_tensor(param, tp, [Replicate()])

    seen_as(partial(local_on, tp), place_each(model, choose))
    model.register_load_state_dict_pre_hook(place_loaded)


def whole_params(model, mesh):
    """Parameters by name that `whole_over` may need as they were before others were placed: no two
    of their dims divide over all ranks."""
    named = model.named_parameters(remove_duplicate=False)
    return {n: p for n, p in named if sum(size % mesh.size() == 0 for size in p.shape) < 2}


def whole_over(model, mesh, dim, reduce, originals=None):
    """Parameters of which no dim divides over the ranks of a mesh dim: all of these hold them, as
    DTensors of the mesh on which fully_shard puts the others, and their gradient.

    `originals`, of `whole_params`, where styles have placed parameters since. `dim` may be of
    `one_dim`, or two: of groups, and of the ranks of one.
    """
    dims = (dim,) if isinstance(dim, str) else dim
    dp, ranks, before = one_dim(mesh, *dims), mesh[dims[-1]].size(), {}

    def choose(path, param):
        if dp_shard(ranks)(param) is not None:
            return None
        placed = dict.fromkeys(dims, Replicate())
        if originals and isinstance(param, DTensor):
            names = param.device_mesh.mesh_dim_names
            placed |= dict(zip(names, param.placements, strict=True))
            before[names], param = param.device_mesh, originals[path]
        order = (
            mesh.mesh_dim_names if dims[0] in mesh.mesh_dim_names else (dim, *mesh.mesh_dim_names)
        )
        names = tuple(name for name in order if name in placed)
        return distribute_tensor(param, mesh[names], [placed[name] for name in names])

    def on_others(param):
        at = dict(zip(param.device_mesh.mesh_dim_names, param.placements, strict=True))
        at = {name: placement for name, placement in at.items() if name not in dims}
        return DTensor.from_local(
            param.to_local(), before[tuple(at)], [*at.values()], run_check=False
        )

    def seen(param):
        split = isinstance(param, DTensor) and param.device_mesh.ndim > len(dims)
        return on_others(param) if split else local_of(param)

    held = place_each(model, choose)
    found = {module._parameters[name] for module, names in held.items() for name in names}
    for param in found:
        if param.requires_grad:
            param.register_hook(partial(over_ranks, dp=dp, reduce=reduce))
    for view, local in ((local_of, True), (seen, False)):
        names = {m: [n for n in ns if hasattr(type(m), n) == local] for m, ns in held.items()}
        seen_as(view, {module: some for module, some in names.items() if some})
    return found


class SyncedNorm(torch.autograd.Function):
    """Batch norm of the batch that the ranks of `dp` hold together; its mean and variance too. The
    backward has the factors in the order in which PyTorch opens its own."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps, dp):
        ctx.dims = [d for d in range(x.ndim) if d != 1]
        ctx.count, ctx.dp = x.numel() // x.shape[1] * dp.size(), dp
        ctx.narrow = [1, -1] + [1] * (x.ndim - 2)
        mean = SyncedNorm.mean(ctx, x, True)
        centred = x - mean
        variance = SyncedNorm.mean(ctx, centred * centred, True)
        rstd = (variance + eps).rsqrt()
        ctx.save_for_backward(centred, rstd.flatten(), weight)
        out = centred * rstd if weight is None else centred * rstd * weight.view(ctx.narrow)
        out = out if bias is None else out + bias.view(ctx.narrow)
        return out, mean.flatten(), variance.flatten()

    @staticmethod
    def mean(ctx, x, keepdim=False):
        return funcol.all_reduce(x.sum(ctx.dims, keepdim), "sum", ctx.dp) / ctx.count

    @staticmethod
    def backward(ctx, grad, *_):
        centred, rstd, weight = ctx.saved_tensors
        along = SyncedNorm.mean(ctx, grad * centred) * (rstd * rstd)
        back = grad - centred * along.view(ctx.narrow) - SyncedNorm.mean(ctx, grad).view(ctx.narrow)
        if weight is None:
            return back * rstd.view(ctx.narrow), None, None, None, None
        to_weight = (grad * centred).sum(ctx.dims) * rstd
        back = back * (rstd * weight).view(ctx.narrow)
        return back, to_weight, grad.sum(ctx.dims), None, None


class SyncedStatistics(TorchFunctionMode):
    """`F.batch_norm` takes the statistics of the batch of all ranks of `dp`, where it takes any."""

    def __init__(self, dp):
        super().__init__()
        self.dp = dp

    def __torch_function__(self, func, types, args=(), kwargs=None):
        run = self.normed if func is F.batch_norm else func
        return run(*args, **(kwargs or {}))

    def normed(
        self, x, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
    ):
        if not training:
            return F.batch_norm(x, mean, variance, weight, bias, False, momentum, eps)
        out, *found = SyncedNorm.apply(x, weight, bias, eps, self.dp)
        count = x.numel() // x.shape[1] * self.dp.size()
        found[1] = found[1] * count / (count - 1)
        for held, new in zip((mean, variance), found, strict=True):
            if held is not None:
                held.copy_(held + (new.detach() - held) * momentum)
        return out


class Synced:
    """A batch norm that in train mode takes the statistics of the batch of all ranks of `dp`."""

    def forward(self, *args, **kwargs):
        with SyncedStatistics(self.dp):
            return super().forward(*args, **kwargs)


def synced_norms(model, dp):
    """Batch norms take the statistics of the batch of all ranks."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            kind = type(module)
            module.__class__ = type(kind.__name__, (Synced, kind), {"dp": dp})


def seeing(module, own):
    """The code of a module sees what `own` makes of its parameters."""
    run = module.forward

    def forward(*args, **kwargs):
        held = module._parameters
        module._parameters = held | own(held)
        try:
            return run(*args, **kwargs)
        finally:
            module._parameters = held

    module.forward = forward


def summed_over(module, tp):
    """Own parameters of a module that works on its piece: their gradients add up over `tp`."""

    def used(held):
        there = {name: local_of(param) for name, param in held.items() if param is not None}
        seen = {name: param.view_as(param) for name, param in there.items()}
        for param in seen.values():
            if param.requires_grad:
                param.register_hook(partial(over_ranks, dp=tp, reduce="sum"))
        return seen

    seeing(module, used)


def own_pieces(module, tp, splits):
    """Own parameters of a module, split over `tp`: code that reads them sees its piece.

    `splits` maps a parameter to the dim that is split.
    """
    for name, dim in splits.items():
        whole = getattr(module, name)
        param = nn.Parameter(distribute_tensor(whole, tp, [Shard(dim)]), whole.requires_grad)
        module.register_parameter(name, param)
    seen_as(partial(local_on, tp), {module: list(splits)})


class OwnOutput(ParallelStyle):
    """A style whose output is a tensor of its own, which the code that follows writes into."""

    def __init__(self, style):
        self.style = style

    def _apply(self, module, device_mesh):
        module = self.style._apply(module, device_mesh)
        module.register_forward_hook(lambda module, args, output: output.clone())
        return module


class SharedInput(ParallelStyle):
    """A style whose input, whole on every rank, is read elsewhere too.

    Each rank leaves its share of the gradient of the input.
    """

    def __init__(self, style):
        self.style = style

    def _apply(self, module, device_mesh):
        def whole(module, args):
            shares = {"run_check": False, "grad_placements": [Partial()]}
            return (DTensor.from_local(args[0], device_mesh, [Replicate()], **shares), *args[1:])

        module = self.style._apply(module, device_mesh)
        module.register_forward_pre_hook(whole, prepend=True)
        return module


class SharedOutput(ParallelStyle):
    """A style, or none, whose output, whole on every rank, meets split activations.

    Ranks add up the gradient of the output.
    """

    def __init__(self, style=None):
        self.style = style

    def _apply(self, module, device_mesh):
        if self.style is not None:
            module = self.style._apply(module, device_mesh)
        module.register_forward_hook(lambda m, args, y: whole_input(y, device_mesh, Replicate()))
        return module


def whole_param(param):
    """A parameter in full, on every rank: what all ranks compute from it alike is right."""
    return param.full_tensor() if isinstance(param, DTensor) else param


def split_in_ratio(x, sizes, dim=0, kept=()):
    """`x.split(sizes, dim)` of a rank's share of what has these sizes, some `kept` whole."""
    whole = sum(sizes[i] for i in kept)
    own, total = x.size(dim) - whole, sum(sizes) - whole
    shares = (n if i in kept else n * own // total for i, n in enumerate(sizes))
    return x.split(list(shares), dim)


def edited_method(module, name, *texts):
    """`module` gets a copy of a method of its class, in which each text is the one after it."""
    method = inspect.unwrap(getattr(type(module), name))
    lines, first = inspect.getsourcelines(method)
    source = textwrap.dedent("".join(lines))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if old not in source:
            raise ValueError(f"{type(module).__name__}.{name} has no {old!r}: parallelize it again")
        source = source.replace(old, new)
    file, made = inspect.getsourcefile(method), {}
    exec(compile("\n" * (first - 1) + source, file, "exec"), method.__globals__, made)
    setattr(module, name, MethodType(made[name], module))


def divide_axes(layer, **parts):
    """A layer of einops is told that these axes are so many times shorter."""
    state = layer.__getstate__()
    lengths = dict(state["axes_lengths"])
    lengths |= {name: lengths[name] // n for name, n in parts.items()}
    layer.__setstate__({**state, "axes_lengths": lengths})


def divide_held(owner, name, attribute, parts):
    """An integer of the module that `owner` holds as `name` is divided, also of one that stands
    there when `owner` is called later on."""
    done = WeakSet()

    def divide(owner, args):
        held = getattr(owner, name)
        if held not in done:
            setattr(held, attribute, getattr(held, attribute) // parts)
            done.add(held)

    owner.register_forward_pre_hook(divide)


class Passed(Exception):  # noqa: N818 (nothing went wrong)
    """Ends a forward at a cut, with the activation that the next stage is given."""


class Earlier(nn.Module):
    """Stands for a module of an earlier stage: gives what that stage passed on."""

    received = None

    def forward(self, *args, **kwargs):
        return self.received


class Later(nn.Module):
    """Stands for a module of a later stage."""

    def forward(self, activation, *args, **kwargs):
        raise Passed(activation)


class Stage:
    """The modules at some paths of a model, under the names they have there.

    Args:
        stages: paths of the modules that each stage keeps, in the order in which they are called.
            Modules with one parameter are on each stage that calls one of them.
        index: which of these it is.
    """

    def __init__(self, stages, index):
        self.stages, self.index = stages, index
        self.names = {}
        """Of each module that lacks some, the names of all that it had."""

    def keep(self, model):
        """`model` without the modules of other stages."""
        for path in set(chain(*self.stages)).difference(self.stages[self.index]):
            owner, _, name = path.rpartition(".")
            held = model.get_submodule(owner)
            self.names.setdefault(owner, list(held._modules))
            delattr(held, name)
        return model

    def run(self, model, call):
        """Make a call of what was kept run the stage. The owner's forward runs as it stands: a
        module of an earlier stage gives what this one is given, the first of a later one ends it.

        Args:
            call: takes the owner's forward and the inputs, in the order in which a step names them;
                the last stage gives its result.
        """
        earlier, later = Earlier(), Later()
        before = set(chain(*self.stages[: self.index]))
        for owner, names in self.names.items():
            own = model.get_submodule(owner)._modules
            paths = {name: f"{owner}.{name}".lstrip(".") for name in names}
            own |= {
                n: own.pop(n, earlier if path in before else later) for n, path in paths.items()
            }
        whole = model.forward

        def forward(*received, **inputs):
            earlier.received = received[0] if received else None
            try:
                return call(whole, *inputs.values())
            except Passed as passed:
                return passed.args[0]
            finally:
                earlier.received = None

        model.forward = forward
