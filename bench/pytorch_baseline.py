"""The PyTorch side of `flash-bench learner`: the same networks, the same batches, in plain idiomatic PyTorch on one
thread. What flashd's own updates do beyond this (normalising the batch, clipping gradients, looking for divergence) is
left out, in PyTorch's favour. Prints JSON: medians of CPU time in microseconds.

Usage: pytorch_baseline.py '{"agents": 1000, "state": 7, "actions": 2, "frequency_state": 6, "levels": 10}'
"""
import json
import statistics
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)


def median_us(work, rounds, warm_up):
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(rounds):
        begun = time.thread_time()
        work()
        times.append((time.thread_time() - begun) * 1e6)
    return statistics.median(times)


def make_actor(state, actions):
    return nn.Sequential(nn.Linear(state, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, actions), nn.Tanh())


def make_critic(state, actions):
    return nn.Sequential(
        nn.Linear(state + actions, 40), nn.LayerNorm(40, elementwise_affine=False), nn.ReLU(),
        nn.Linear(40, 40), nn.LayerNorm(40, elementwise_affine=False), nn.ReLU(), nn.Linear(40, 1))


def make_q(state, levels):
    return nn.Sequential(nn.Linear(state, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, levels))


def target_of(network, make, *shape):
    target = make(*shape)
    target.load_state_dict(network.state_dict())
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    return target


@torch.no_grad()
def soft_update(target, network, tau):
    for t, p in zip(target.parameters(), network.parameters()):
        t.lerp_(p, tau)


def decisions(agents, state, actions):
    """All agents' actors, one after the other, each with its own state; and as one batched product."""
    actors = [make_actor(state, actions) for _ in range(agents)]
    states = [torch.rand(state) for _ in range(agents)]

    @torch.inference_mode()
    def one_by_one():
        for actor, x in zip(actors, states):
            actor(x)

    layers = [(torch.stack([a[i].weight.detach() for a in actors]), torch.stack([a[i].bias.detach() for a in actors]))
              for i in (0, 2, 4)]
    stacked = torch.stack(states).unsqueeze(-1)

    @torch.inference_mode()
    def batched():
        x = stacked
        for weight, bias in layers:
            x = torch.tanh(torch.baddbmm(bias.unsqueeze(-1), weight, x))

    return median_us(one_by_one, 30, 5), median_us(batched, 100, 10)


def ddpg(state, actions, size=2000, batch=64, discount=0.99, tau=3e-3):
    actor, critic = make_actor(state, actions), make_critic(state, actions)
    target_actor = target_of(actor, make_actor, state, actions)
    target_critic = target_of(critic, make_critic, state, actions)
    actor_adam = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_adam = torch.optim.Adam(critic.parameters(), lr=3e-3)
    s, a, r, s1 = torch.rand(size, state), torch.rand(size, actions) * 2 - 1, torch.rand(size, 1), torch.rand(size, state)

    def update():
        i = torch.randint(0, size, (batch,))
        s_t, a_t, r_t, s_tp1 = s[i], a[i], r[i], s1[i]
        with torch.no_grad():
            y_t = r_t + discount * target_critic(torch.cat([s_tp1, target_actor(s_tp1)], 1))
        critic_loss = nn.functional.mse_loss(critic(torch.cat([s_t, a_t], 1)), y_t)
        critic_adam.zero_grad(set_to_none=True)
        critic_loss.backward()
        critic_adam.step()
        actor_loss = -critic(torch.cat([s_t, actor(s_t)], 1)).mean()
        actor_adam.zero_grad(set_to_none=True)
        actor_loss.backward()
        actor_adam.step()
        soft_update(target_critic, critic, tau)
        soft_update(target_actor, actor, tau)

    return median_us(update, 500, 50)


def q_learning(state, levels, size=2000, batch=32, discount=0.99, tau=0.005):
    q = make_q(state, levels)
    target = target_of(q, make_q, state, levels)
    adam = torch.optim.Adam(q.parameters(), lr=1e-3)
    s, a, r, s1 = torch.rand(size, state), torch.randint(0, levels, (size, 1)), torch.rand(size, 1), torch.rand(size, state)

    def update():
        i = torch.randint(0, size, (batch,))
        s_t, a_t, r_t, s_tp1 = s[i], a[i], r[i], s1[i]
        with torch.no_grad():
            best = q(s_tp1).argmax(1, keepdim=True)
            y_t = r_t + discount * target(s_tp1).gather(1, best)
        loss = nn.functional.smooth_l1_loss(q(s_t).gather(1, a_t), y_t)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        soft_update(target, q, tau)

    return median_us(update, 500, 50)


def main():
    shapes = json.loads(sys.argv[1])
    one_by_one, batched = decisions(shapes["agents"], shapes["state"], shapes["actions"])
    print(json.dumps({
        "version": torch.__version__,
        "decision_us": one_by_one,
        "decision_batched_us": batched,
        "update_us": {"ddpg": ddpg(shapes["state"], shapes["actions"]),
                      "q": q_learning(shapes["frequency_state"], shapes["levels"])},
    }))


main()
