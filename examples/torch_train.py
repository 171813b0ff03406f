#!/usr/bin/python3
"""Trains a model on synthetic data, and prints losses for a comparison.

This is an ordinary training script, without any knowledge of Ebb. For each iteration it prints the
loss with all its digits, and the seconds. So two runs can be compared to the last bit.

    torch_train.py --model resnet50 --batch 16 --size 224 --iterations 8 --seed 1

Models are those of torchvision.models on images of --size squared; `gpt`, a decoder-only
transformer; and `lstm`. The last two predict the next of --classes tokens in sequences of length
--size.
"""
import argparse
import time

import torch
import torchvision


class NextToken(torch.nn.Module):
    """Embedding, a body over the sequence, and a score for each possible next token."""

    def __init__(self, kind, tokens, length, width=256, layers=6):
        super().__init__()
        self.embedding = torch.nn.Embedding(tokens, width)
        self.mask = None
        if kind == "gpt":
            layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width,
                                                     activation="gelu", batch_first=True)
            self.body = torch.nn.TransformerEncoder(layer, layers)
            self.mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        else:
            self.body = torch.nn.LSTM(width, width, 2, batch_first=True)
        self.head = torch.nn.Linear(width, tokens)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        hidden = self.body(hidden)[0] if self.mask is None else self.body(hidden, self.mask)
        return self.head(hidden).transpose(1, 2)


def make(args):
    """The model, and a function that draws a mini-batch and its labels."""
    if args.model in ("gpt", "lstm"):
        def sequences():
            drawn = torch.randint(0, args.classes, (args.batch, args.size + 1))
            return drawn[:, :-1], drawn[:, 1:]
        model = NextToken(args.model, args.classes, args.size, args.width, args.layers)
        return model, sequences

    def images():
        return (torch.randn(args.batch, 3, args.size, args.size),
                torch.randint(0, args.classes, (args.batch,)))
    more = {"aux_logits": False} if args.model in ("inception_v3", "googlenet") else {}
    return getattr(torchvision.models, args.model)(num_classes=args.classes, **more), images


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="gpt, lstm, or a name from torchvision.models")
    parser.add_argument("--batch", type=int, default=16, help="images or sequences in a mini-batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of an image, length of a sequence")
    parser.add_argument("--classes", type=int, default=1000, help="number of classes or tokens")
    parser.add_argument("--width", type=int, default=256, help="width of gpt and lstm")
    parser.add_argument("--layers", type=int, default=6, help="layers of gpt")
    parser.add_argument("--iterations", type=int, default=8, help="training iterations")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and data")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2)")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model, draw = make(args)
    model.train()
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    for iteration in range(args.iterations):
        start = time.perf_counter()
        inputs, labels = draw()
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        print(f"iteration {iteration} loss {loss.item()!r} seconds {time.perf_counter() - start:.4f}",
              flush=True)


if __name__ == "__main__":
    main()
