"""Reinforcement learning. A step is a rollout of 32 moves, and four updates over their results."""
import torch

import life

MOVES, ACTIONS = 32, 6


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 8, 4), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 4, 2), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(64 * 49, 512), torch.nn.ReLU(), torch.nn.Linear(512, ACTIONS + 1))


def main():
    args = life.arguments(batch=32)  # worlds that run in parallel
    torch.manual_seed(args.seed)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    state = torch.rand(args.batch, 4, 84, 84)
    life.begin()
    for _ in range(args.steps):
        seen, taken, odds, values, rewards = [], [], [], [], []
        with torch.no_grad():
            for _ in range(MOVES):
                out = model(state)
                choice = torch.distributions.Categorical(logits=out[:, :ACTIONS])
                action = choice.sample()
                seen.append(state)
                taken.append(action)
                odds.append(choice.log_prob(action))
                values.append(out[:, ACTIONS])
                rewards.append(torch.cos(action + state.mean((1, 2, 3))))
                frame = (state[:, :1] * 0.9 + action[:, None, None, None] * 0.02).sin()
                state = torch.cat((state[:, 1:], frame + 0.1 * torch.rand_like(frame)), 1)
            gain, returns = torch.zeros(args.batch), []
            for reward in reversed(rewards):
                gain = reward + 0.99 * gain
                returns.insert(0, gain)
            seen, taken, odds, values, returns = (
                torch.cat(part) for part in (seen, taken, odds, values, returns))
            better = returns - values
            better = (better - better.mean()) / (better.std() + 1e-6)
        losses = []
        for part in torch.randperm(len(seen)).chunk(4):
            out = model(seen[part])
            choice = torch.distributions.Categorical(logits=out[:, :ACTIONS])
            ratio = (choice.log_prob(taken[part]) - odds[part]).exp()
            gains = torch.min(ratio * better[part], ratio.clamp(0.8, 1.2) * better[part])
            loss = (-gains + 0.5 * (out[:, ACTIONS] - returns[part]) ** 2).mean() \
                - 0.01 * choice.entropy().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        life.step(*losses)


if __name__ == "__main__":
    main()
