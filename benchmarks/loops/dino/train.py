import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


class Net(nn.Module):
    def __init__(self, width=6, out_dim=5):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.LayerNorm(width))
        self.mlp = nn.Linear(width, width)
        self.last_layer = nn.Linear(width, out_dim, bias=False)

    def forward(self, crops):
        x = self.mlp(self.backbone(torch.cat(crops)))
        return self.last_layer(F.normalize(x, dim=-1, p=2))


class DINOLoss(nn.Module):
    def __init__(self, out_dim, ncrops, center_momentum=0.9):
        super().__init__()
        self.ncrops = ncrops
        self.center_momentum = center_momentum
        self.register_buffer("center", torch.zeros(1, out_dim))

    def forward(self, student_output, teacher_output):
        student_out = (student_output / 0.1).chunk(self.ncrops)
        teacher_out = F.softmax((teacher_output - self.center) / 0.04, dim=-1).detach().chunk(2)
        total_loss, terms = 0, 0
        for iq, q in enumerate(teacher_out):
            for v in range(len(student_out)):
                if v != iq:
                    loss = torch.sum(-q * F.log_softmax(student_out[v], dim=-1), dim=-1)
                    total_loss += loss.mean()
                    terms += 1
        self.update_center(teacher_output)
        return total_loss / terms

    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        if dist.is_initialized():
            dist.all_reduce(batch_center)
        batch_center = batch_center / (len(teacher_output) * world_size())
        self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)


def clip_gradients(model, clip):
    for p in model.parameters():
        if p.grad is not None:
            clip_coef = clip / (p.grad.data.norm(2) + 1e-6)
            if clip_coef < 1:
                p.grad.data.mul_(clip_coef)


def build(wrap):
    student, teacher = Net(), Net()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    student = wrap(student)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
    return student, teacher, DINOLoss(5, 3), optimizer


def single():
    return build(lambda model: model)


def parallel():
    return build(DistributedDataParallel)


def train_step(student, teacher, dino_loss, optimizer, first, second, local):
    crops = [first, second, local]
    teacher_output = teacher(crops[:2])
    student_output = student(crops)
    loss = dino_loss(student_output, teacher_output)
    optimizer.zero_grad()
    loss.backward()
    clip_gradients(student, 3.0)
    optimizer.step()
    with torch.no_grad():
        m = 0.996
        of = getattr(student, "module", student)
        for param_q, param_k in zip(of.parameters(), teacher.parameters()):
            param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)
    return loss.detach()
