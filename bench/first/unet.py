"""A U-Net for segmentation, evaluated after each third step."""
import torch

import life


def main():
    args = life.arguments(batch=10)
    torch.manual_seed(args.seed)
    model = life.unet(width=16, depth=4, inputs=3, outputs=5)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    def draw(batch):
        return torch.randn(batch, 3, 128, 128), torch.randint(0, 5, (batch, 128, 128))

    life.begin()
    for step in range(args.steps):
        model.train()
        images, labels = draw(args.batch)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses = [loss.item()]
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                for _ in range(2):
                    images, labels = draw(args.batch)
                    losses.append(criterion(model(images), labels).item())
        life.step(*losses)


if __name__ == "__main__":
    main()
