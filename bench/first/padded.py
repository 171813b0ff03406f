"""A transformer over batches padded to their longest sequence: each step has a length of its own."""
import random

import torch

import life

TOKENS = 4000


class Model(torch.nn.Module):
    def __init__(self, width=256, layers=6):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, width)
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.body = torch.nn.TransformerEncoder(layer, layers)
        self.head = torch.nn.Linear(width, 16)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)).mean(1))


def main():
    args = life.arguments(batch=6)
    torch.manual_seed(args.seed)
    draw = random.Random(args.seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    life.begin()
    for step in range(args.steps):
        # The longest of a batch of drawn lengths. The first step has the longest of all.
        length = 160 if step == 0 else max(draw.randint(24, 160) for _ in range(3))
        tokens = torch.randint(0, TOKENS, (args.batch, length))
        loss = criterion(model(tokens), torch.randint(0, 16, (args.batch,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        life.step(loss.item())


if __name__ == "__main__":
    main()
