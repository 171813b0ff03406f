#!/usr/bin/env python3
"""Trains a small residual network with Lightning, with validation. Prints losses and seconds.

    lightning_train.py --iterations 12
"""
import argparse
import os
import tempfile
import time
import warnings

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")

import lightning  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402


class Images(torch.utils.data.Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randn(3, self.size, self.size, generator=draw), index % 10


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=10)
        self.start = time.perf_counter()

    def loss(self, batch):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.net(images), labels)

    def training_step(self, batch, index):
        loss = self.loss(batch)
        now = time.perf_counter()
        print(f"iteration {self.global_step} loss {loss.item()!r} seconds {now - self.start:.4f}",
              flush=True)
        self.start = now
        return loss

    def validation_step(self, batch, index):
        print(f"evaluation iteration {index} loss {self.loss(batch).item()!r} seconds 0", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    lightning.seed_everything(args.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_steps=args.iterations, accelerator="cpu", logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder,
            val_check_interval=args.iterations // 2, limit_val_batches=3, num_sanity_val_steps=0)

        def load(count):
            return torch.utils.data.DataLoader(Images(count, args.size), batch_size=args.batch)
        trainer.fit(Module(), load(args.batch * args.iterations), load(3 * args.batch))


if __name__ == "__main__":
    main()
