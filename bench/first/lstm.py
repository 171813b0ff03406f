"""An LSTM over sequences of bucketed lengths, with clipping and an evaluation each 7th step."""
import random

import torch

import life

TOKENS, LENGTHS = 1500, (24, 32, 48, 64)


class Model(torch.nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, width)
        self.body = torch.nn.LSTM(width, width, 2, batch_first=True)
        self.head = torch.nn.Linear(width, TOKENS)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens))[0]).transpose(1, 2)


def main():
    args = life.arguments(batch=96)
    torch.manual_seed(args.seed)
    # Each bucket occurs once in four steps, in random order. So the longest is among the first
    # four.
    shuffle, buckets = random.Random(args.seed), []
    while len(buckets) < args.steps:
        buckets += shuffle.sample(LENGTHS, len(LENGTHS))
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    def loss_of(length):
        drawn = torch.randint(0, TOKENS, (args.batch, length + 1))
        return criterion(model(drawn[:, :-1]), drawn[:, 1:])

    life.begin()
    for step in range(args.steps):
        loss = loss_of(buckets[step])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses = [loss.item()]
        if step % 7 == 6:
            with torch.no_grad():
                losses.append(loss_of(LENGTHS[-1]).item())
        life.step(*losses)


if __name__ == "__main__":
    main()
