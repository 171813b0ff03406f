"""MobileNet v3, strictly periodic: many small operations."""
import torch
import torchvision

import life


def main():
    args = life.arguments(batch=40)
    torch.manual_seed(args.seed)
    model = torchvision.models.mobilenet_v3_large(num_classes=100).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    life.begin()
    for _ in range(args.steps):
        images = torch.randn(args.batch, 3, 96, 96)
        labels = torch.randint(0, 100, (args.batch,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        life.step(loss.item())


if __name__ == "__main__":
    main()
