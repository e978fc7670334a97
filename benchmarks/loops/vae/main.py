import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 12)
        self.fc21 = nn.Linear(12, 4)
        self.fc22 = nn.Linear(12, 4)
        self.fc3 = nn.Linear(4, 12)
        self.fc4 = nn.Linear(12, 16)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 16))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 16), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def single():
    model = VAE()
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def parallel():
    model = DistributedDataParallel(VAE())
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def train_step(model, optimizer, image):
    model.train()
    data = torch.sigmoid(image)
    optimizer.zero_grad()
    recon_batch, mu, logvar = model(data)
    loss = loss_function(recon_batch, data, mu, logvar) / len(data)
    loss.backward()
    optimizer.step()
    print(f"Loss: {loss.item():.6f}")
