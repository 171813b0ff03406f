"""A decoder-only transformer under torch.compile, with a checkpoint in memory each 8th step."""
import io

import torch

import life

WIDTH, LENGTH, TOKENS = 256, 192, 2000


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.joint, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = (part.view(batch, length, 4, -1).transpose(1, 2)
                             for part in self.joint(self.first(x)).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Model(torch.nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.embedding = torch.nn.Embedding(TOKENS, WIDTH)
        self.layers = torch.nn.Sequential(*(Layer() for _ in range(layers)))
        self.head = torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))).transpose(1, 2)


def main():
    args = life.arguments(batch=16)
    torch.manual_seed(args.seed)
    # Otherwise compiled code sums the gradient of the embedding in any order of its threads.
    torch.use_deterministic_algorithms(True)
    plain = Model()
    model = torch.compile(plain)
    optimizer = torch.optim.AdamW(plain.parameters(), 1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    life.begin()
    for step in range(args.steps):
        drawn = torch.randint(0, TOKENS, (args.batch, LENGTH + 1))
        optimizer.zero_grad()
        loss = criterion(model(drawn[:, :-1]), drawn[:, 1:])
        loss.backward()
        optimizer.step()
        losses = [loss.item()]
        if step % 8 == 7:
            saved = io.BytesIO()
            torch.save((plain.state_dict(), optimizer.state_dict()), saved)
        life.step(*losses)


if __name__ == "__main__":
    main()
