"""ConvNeXt: two micro-batches a step, averaged weights, clipping, a smaller batch each 6th step."""
import torch
import torchvision

import life


def main():
    args = life.arguments(batch=8)
    torch.manual_seed(args.seed)
    model = torchvision.models.convnext_tiny(num_classes=100).train()
    averaged = torch.optim.swa_utils.AveragedModel(
        model, avg_fn=lambda old, new, count: 0.99 * old + 0.01 * new)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 8))
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    life.begin()
    for step in range(args.steps):
        batch = args.batch if step % 6 != 5 else max(1, args.batch * 5 // 8)
        losses = []
        for _ in range(2):
            images = torch.randn(batch, 3, 64, 64)
            labels = torch.randint(0, 100, (batch,))
            loss = criterion(model(images), labels) / 2
            loss.backward()
            losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        warm_up.step()
        averaged.update_parameters(model)
        life.step(*losses)


if __name__ == "__main__":
    main()
