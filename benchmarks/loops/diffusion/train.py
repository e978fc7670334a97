import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DDPMScheduler:
    def __init__(self, num_train_timesteps=10, beta_start=0.0001, beta_end=0.02):
        self.num_train_timesteps = num_train_timesteps
        self.betas = torch.linspace(beta_start, beta_end, num_train_timesteps)
        self.alphas = 1.0 - self.betas
        self.alphas_cumprod = torch.cumprod(self.alphas, dim=0)

    def add_noise(self, original_samples, noise, timesteps):
        alphas_cumprod = self.alphas_cumprod.to(dtype=original_samples.dtype)
        sqrt_alpha_prod = alphas_cumprod[timesteps] ** 0.5
        sqrt_alpha_prod = sqrt_alpha_prod.flatten()
        while len(sqrt_alpha_prod.shape) < len(original_samples.shape):
            sqrt_alpha_prod = sqrt_alpha_prod.unsqueeze(-1)
        sqrt_one_minus_alpha_prod = (1 - alphas_cumprod[timesteps]) ** 0.5
        sqrt_one_minus_alpha_prod = sqrt_one_minus_alpha_prod.flatten()
        while len(sqrt_one_minus_alpha_prod.shape) < len(original_samples.shape):
            sqrt_one_minus_alpha_prod = sqrt_one_minus_alpha_prod.unsqueeze(-1)
        return sqrt_alpha_prod * original_samples + sqrt_one_minus_alpha_prod * noise


class UNet(nn.Module):
    def __init__(self, channels=3, width=4, steps=10):
        super().__init__()
        self.time = nn.Embedding(steps, width)
        self.down = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.up = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, t):
        h = self.down(x) + self.time(t)[:, :, None, None]
        return self.up(F.silu(self.norm(h)))


class EMAModel:
    def __init__(self, parameters, decay=0.99):
        self.shadow_params = [p.clone().detach() for p in parameters]
        self.decay = decay
        self.optimization_step = 0

    def get_decay(self, optimization_step):
        step = max(0, optimization_step - 1)
        return min((1 + step) / (10 + step), self.decay)

    @torch.no_grad()
    def step(self, parameters):
        self.optimization_step += 1
        one_minus_decay = 1 - self.get_decay(self.optimization_step)
        for s_param, param in zip(self.shadow_params, parameters):
            s_param.sub_(one_minus_decay * (s_param - param))


def setup(distributed):
    unet = UNet()
    ema = EMAModel(unet.parameters())
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4, weight_decay=1e-2)
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10))
    if distributed:
        unet = DistributedDataParallel(unet)
    return unet, optimizer, lr_scheduler, ema, DDPMScheduler()


def single():
    return setup(False)


def parallel():
    return setup(True)


def train_step(unet, optimizer, lr_scheduler, ema, noise_scheduler, latents):
    noise = torch.randn_like(latents)
    bsz = latents.shape[0]
    timesteps = torch.randint(
        0, noise_scheduler.num_train_timesteps, (bsz,), device=latents.device
    ).long()
    noisy_latents = noise_scheduler.add_noise(latents, noise, timesteps)
    model_pred = unet(noisy_latents, timesteps)
    loss = F.mse_loss(model_pred.float(), noise.float(), reduction="mean")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
    optimizer.step()
    lr_scheduler.step()
    optimizer.zero_grad()
    ema.step((unet.module if hasattr(unet, "module") else unet).parameters())
    print({"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0]})
