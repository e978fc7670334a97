import torch
from model import Transformer
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def set_modules_to_forward_prefetch(model, num_to_forward_prefetch):
    for i, layer in enumerate(model.layers):
        if i >= len(model.layers) - num_to_forward_prefetch:
            break
        layers = [model.layers[i + j] for j in range(1, num_to_forward_prefetch + 1)]
        layer.set_modules_to_forward_prefetch(layers)


def set_modules_to_backward_prefetch(model, num_to_backward_prefetch):
    for i, layer in enumerate(model.layers):
        if i < num_to_backward_prefetch:
            continue
        layers = [model.layers[i - j] for j in range(1, num_to_backward_prefetch + 1)]
        layer.set_modules_to_backward_prefetch(layers)


def single():
    model = Transformer()
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def parallel(mesh):
    fsdp_kwargs = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    }
    with torch.device("meta"):
        model = Transformer()
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    set_modules_to_forward_prefetch(model, num_to_forward_prefetch=1)
    set_modules_to_backward_prefetch(model, num_to_backward_prefetch=1)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optim


def train_step(model, optim, x):
    loss = torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=0.1)
    optim.step()
    optim.zero_grad()
