"""PoolFormer of timm: mixed images, averaged weights and their evaluation, a cosine schedule."""
import timm
import timm.data
import timm.loss
import timm.scheduler
import timm.utils
import torch

import life


def main():
    args = life.arguments(batch=24)
    timm.utils.random_seed(args.seed)
    model = timm.create_model("poolformer_s12", num_classes=100, drop_path_rate=0.1).train()
    averaged = timm.utils.ModelEmaV3(model, decay=0.99)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.05)
    schedule = timm.scheduler.CosineLRScheduler(optimizer, t_initial=1000, warmup_t=10,
                                                warmup_lr_init=1e-6, t_in_epochs=False)
    mix = timm.data.Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=100)
    criterion = timm.loss.SoftTargetCrossEntropy()

    def draw():
        return torch.randn(args.batch, 3, 96, 96), torch.randint(0, 100, (args.batch,))

    life.begin()
    for step in range(args.steps):
        images, labels = mix(*draw())
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        schedule.step_update(step)
        averaged.update(model, step=step)
        losses = [loss.item()]
        if step % 9 == 8:
            with torch.no_grad():
                images, labels = draw()
                scores = averaged.module(images)
                losses.append(torch.nn.functional.cross_entropy(scores, labels).item())
        life.step(*losses)


if __name__ == "__main__":
    main()
