import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


class LoRALinear(nn.Module):
    def __init__(self, inputs, outputs, rank=2, alpha=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.1, requires_grad=False)
        self.lora_a = nn.Linear(inputs, rank, bias=False)
        self.lora_b = nn.Linear(rank, outputs, bias=False)
        self.scaling = alpha / rank

    def forward(self, x):
        return F.linear(x, self.weight) + self.scaling * self.lora_b(self.lora_a(x))


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class LM(nn.Module):
    def __init__(self, vocab=8, dim=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = MLP(dim)
        self.adapter = LoRALinear(dim, dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        return self.output(self.adapter(self.mlp(self.embed(ids))))


def kd_loss(student, teacher, labels, temperature=2.0):
    student = F.log_softmax(student / temperature, dim=-1)
    teacher = F.softmax(teacher / temperature, dim=-1)
    per_token = -(teacher * student).sum(-1).view(-1)
    mask = (labels != -100).int().view(-1)
    if mask.sum() == 0:
        return torch.tensor(0.0)
    return (per_token * mask).sum() / mask.sum()


class Recipe:
    def __init__(self, student, kd_ratio=0.5):
        self.student = student
        for name, p in student.named_parameters():
            p.requires_grad_("lora" in name or "mlp" in name)
        self.kd_ratio = kd_ratio
        self.optimizer = torch.optim.AdamW(
            [p for p in student.parameters() if p.requires_grad], lr=3e-4
        )

    def step(self, tokens, labels, teacher_logits):
        logits = self.student(tokens)
        class_loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        kd = kd_loss(logits, teacher_logits, labels)
        loss = (1 - self.kd_ratio) * class_loss + self.kd_ratio * kd
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def single():
    student = LM()
    return student, Recipe(student)


def parallel(mesh):
    student = LM()
    plan = {
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(),
        "output": ColwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(student, mesh, plan)
    return student, Recipe(student)


def train_step(model, recipe, tokens, labels, teacher_logits):
    return recipe.step(tokens, labels, teacher_logits)
