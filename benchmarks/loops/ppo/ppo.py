import torch
import torch.distributed as dist
from torch import nn
from torch.distributions.categorical import Categorical


class Agent(nn.Module):
    def __init__(self, observed=3, actions=3, width=6):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(observed, width), nn.Tanh())
        self.actor = nn.Linear(width, actions)
        self.critic = nn.Linear(width, 1)

    def get_value(self, x):
        return self.critic(self.network(x))

    def get_action_and_value(self, x, action):
        hidden = self.network(x)
        probs = Categorical(logits=self.actor(hidden))
        return probs.log_prob(action), probs.entropy(), self.critic(hidden)


class Args:
    gamma = 0.99
    gae_lambda = 0.95
    clip_coef = 0.1
    ent_coef = 0.01
    vf_coef = 0.5
    max_grad_norm = 0.5
    norm_adv = False

    def __init__(self, world_size):
        self.world_size = world_size


def average_gradients(agent, args):
    all_grads_list = [p.grad.view(-1) for p in agent.parameters() if p.grad is not None]
    all_grads = torch.cat(all_grads_list)
    dist.all_reduce(all_grads, op=dist.ReduceOp.SUM)
    offset = 0
    for param in agent.parameters():
        if param.grad is not None:
            part = all_grads[offset : offset + param.numel()].view_as(param.grad.data)
            param.grad.data.copy_(part / args.world_size)
            offset += param.numel()


def single():
    agent = Agent()
    return agent, torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5), Args(1)


def parallel():
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    return agent, optimizer, Args(dist.get_world_size())


def train_step(agent, optimizer, args, obs, actions, logprobs, rewards, dones):
    """obs, dones: one time more than the rest, in the first dim; environments in the second."""
    num_steps = len(rewards)
    with torch.no_grad():
        values = agent.get_value(obs).squeeze(-1)
        advantages = [None] * num_steps
        lastgaelam = 0
        for t in reversed(range(num_steps)):
            nextnonterminal = 1.0 - dones[t + 1]
            delta = rewards[t] + args.gamma * values[t + 1] * nextnonterminal - values[t]
            lastgaelam = delta + args.gamma * args.gae_lambda * nextnonterminal * lastgaelam
            advantages[t] = lastgaelam
        advantages = torch.stack(advantages)
        returns = advantages + values[:-1]
    b_obs = obs[:-1].reshape(-1, obs.shape[-1])
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs, actions.reshape(-1))
    ratio = (newlogprob - logprobs.reshape(-1)).exp()
    if args.norm_adv:
        b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
    pg_loss1 = -b_advantages * ratio
    pg_loss2 = -b_advantages * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()
    v_loss = 0.5 * ((newvalue.view(-1) - b_returns) ** 2).mean()
    loss = pg_loss - args.ent_coef * entropy.mean() + v_loss * args.vf_coef
    optimizer.zero_grad()
    loss.backward()
    if args.world_size > 1:
        average_gradients(agent, args)
    nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
    optimizer.step()
