"""K-fold training in one process. Each seven steps it validates its model and makes a new one."""
import torch
import torchvision

import life

FOLD = 7


def main():
    args = life.arguments(batch=36)
    torch.manual_seed(args.seed)
    data = torch.randn(15 * args.batch, 3, 64, 64)
    labels = torch.randint(0, 10, (len(data),))
    criterion = torch.nn.CrossEntropyLoss()
    life.begin()
    for step in range(args.steps):
        fold, at = divmod(step, FOLD)
        if at == 0:
            model = torchvision.models.resnet18(num_classes=10)
            optimizer = torch.optim.Adam(model.parameters(), 1e-3)
            held = torch.arange(len(data)) % 5 == fold % 5
            order = torch.nonzero(~held).flatten()
            order = order[torch.randperm(len(order))]
        part = order[(at * args.batch) % len(order):][:args.batch]
        model.train()
        optimizer.zero_grad()
        loss = criterion(model(data[part]), labels[part])
        loss.backward()
        optimizer.step()
        losses = [loss.item()]
        if at == FOLD - 1:
            model.eval()
            with torch.no_grad():
                for part in torch.nonzero(held).flatten().split(args.batch):
                    losses.append(criterion(model(data[part]), labels[part]).item())
        life.step(*losses)


if __name__ == "__main__":
    main()
