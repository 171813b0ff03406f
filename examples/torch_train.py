#!/usr/bin/python3
"""Train a torchvision model on synthetic data and print what a comparison needs.

An ordinary training script: nothing in it knows of Ebb.  It prints, for each iteration,
the loss with all its digits and the seconds taken, so that two runs can be compared
to the last bit.

    torch_train.py --model resnet50 --batch 16 --size 224 --iterations 8 --seed 1
"""
import argparse
import time

import torch
import torchvision


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="a name from torchvision.models")
    parser.add_argument("--batch", type=int, default=16, help="images in a mini-batch")
    parser.add_argument("--size", type=int, default=224, help="height and width of an image")
    parser.add_argument("--classes", type=int, default=1000, help="number of classes")
    parser.add_argument("--iterations", type=int, default=8, help="training iterations")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights and data")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = getattr(torchvision.models, args.model)(num_classes=args.classes)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    for iteration in range(args.iterations):
        start = time.perf_counter()
        images = torch.randn(args.batch, 3, args.size, args.size)
        labels = torch.randint(0, args.classes, (args.batch,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"iteration {iteration} loss {loss.item()!r} seconds {time.perf_counter() - start:.4f}",
              flush=True)


if __name__ == "__main__":
    main()
