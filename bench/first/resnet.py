"""ResNet-50 on small images. A loop at the start computes their mean and deviation. Warm-up."""
import torch
import torchvision

import life


def main():
    args = life.arguments(batch=16)
    torch.manual_seed(args.seed)
    model = torchvision.models.resnet50(num_classes=100).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    def draw():
        return torch.randn(args.batch, 3, 80, 80) * 3 + 1

    total, squares = torch.zeros(3), torch.zeros(3)
    for _ in range(25):
        images = draw()
        total += images.mean((0, 2, 3)) / 25
        squares += (images * images).mean((0, 2, 3)) / 25
    mean = total[:, None, None]
    deviation = (squares - total * total).sqrt()[:, None, None]

    life.begin()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1, (step + 1) / 10)
        images = (draw() - mean) / deviation
        labels = torch.randint(0, 100, (args.batch,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        life.step(loss.item())


if __name__ == "__main__":
    main()
