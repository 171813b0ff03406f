"""ResNet-18 under Lightning: two micro-batches a step, validation, a checkpoint each 8th step."""
import tempfile
import warnings

warnings.filterwarnings("ignore")

import lightning  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402

import life  # noqa: E402  pylint: disable=wrong-import-order


class Images(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        return torch.randn(3, 64, 64, generator=draw), index % 10


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=10)
        self.losses = []

    def loss(self, batch):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.losses.append(loss.item())
        return loss

    def training_step(self, batch, index):
        return self.loss(batch)

    def validation_step(self, batch, index):
        self.loss(batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Steps(Callback):
    def on_train_start(self, trainer, module):
        life.begin()

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if index % 2:
            life.step(*module.losses)
            module.losses = []


def main():
    args = life.arguments(batch=16)
    lightning.seed_everything(args.seed, verbose=False)

    def load(count):
        return torch.utils.data.DataLoader(Images(count * args.batch), batch_size=args.batch)

    with tempfile.TemporaryDirectory() as folder:
        saves = ModelCheckpoint(folder, every_n_train_steps=8, save_top_k=-1)
        lightning.Trainer(
            max_steps=args.steps, accelerator="cpu", logger=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[saves, Steps()], default_root_dir=folder,
            accumulate_grad_batches=2, val_check_interval=10, limit_val_batches=2,
            num_sanity_val_steps=0).fit(Module(), load(max(10, 2 * args.steps + 2)), load(2))


if __name__ == "__main__":
    main()
