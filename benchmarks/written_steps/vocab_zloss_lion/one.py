import torch
import torch.nn as nn

VOCAB, WIDTH, LENGTH = 14, 6, 4
Z_COEF = 0.05


class Lion:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
        self.params = list(params)
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay
        self.trace = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p, m in zip(self.params, self.trace):
            p.mul_(1 - self.lr * self.weight_decay)
            p.sub_(self.lr * torch.sign(b1 * m + (1 - b1) * p.grad))
            m.mul_(b2).add_(p.grad, alpha=1 - b2)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.randn(VOCAB, WIDTH))
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.3)
        self.mix = nn.Linear(WIDTH, 2 * WIDTH)
        self.unmix = nn.Linear(2 * WIDTH, WIDTH)
        self.scores = nn.Parameter(torch.randn(VOCAB, WIDTH))

    def forward(self, tokens, labels):
        h = self.words[tokens] + self.places
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
        h = h + self.unmix(torch.tanh(self.mix(h + 0.5 * before)))
        logits = h @ self.scores.t()
        log_z = logits.logsumexp(-1)
        nll = log_z - logits.gather(-1, labels[..., None]).squeeze(-1)
        return (nll + Z_COEF * log_z ** 2).mean()


def build():
    net = Bigram()
    return net, Lion(net.parameters())


def train_step(net, opt, tokens, labels):
    loss = net(tokens, labels)
    loss.backward()
    opt.step()
    opt.zero_grad()
    return loss.detach()
