#!/usr/bin/env python3
"""Trains GPT-2, made from a configuration, with Hugging Face's Trainer. Prints losses and seconds.

    trainer_train.py --iterations 12

It evaluates, writes checkpoints, and has two DataLoader workers. A second Trainer resumes from a
checkpoint.
"""
import argparse
import os
import tempfile
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402


class Tokens(torch.utils.data.Dataset):
    """Sequences that depend on their index only."""

    def __init__(self, count, length, tokens, seed):
        self.count, self.length, self.tokens, self.seed = count, length, tokens, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(self.seed * 1000003 + index)
        drawn = torch.randint(0, self.tokens, (self.length,), generator=draw)
        return {"input_ids": drawn, "labels": drawn}


class Print(transformers.TrainerCallback):
    """Prints one line for each step, like the other programs here."""

    def __init__(self, first):
        self.number, self.start = first, time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        now = time.perf_counter()
        loss = logs.get("loss", logs.get("eval_loss"))
        if loss is not None:
            kind = "" if "loss" in logs else "evaluation "
            print(f"{kind}iteration {self.number} loss {loss!r} seconds {now - self.start:.4f}",
                  flush=True)
            self.number += "loss" in logs
        self.start = now


def make(args, folder, steps, first):
    torch.manual_seed(args.seed)
    config = transformers.GPT2Config(vocab_size=args.tokens, n_positions=args.size, n_embd=args.width,
                                     n_layer=args.layers, n_head=args.width // 64)
    settings = transformers.TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=args.batch, logging_steps=1, logging_nan_inf_filter=False,
        eval_strategy="steps", eval_steps=args.iterations // 2, save_strategy="steps",
        save_steps=args.iterations // 2, dataloader_num_workers=2, report_to=[], seed=args.seed,
        use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant")
    return transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=settings,
        train_dataset=Tokens(1000 * args.batch, args.size, args.tokens, 1),
        eval_dataset=Tokens(4 * args.batch, args.size, args.tokens, 2),
        callbacks=[Print(first)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=128, help="length of a sequence")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        make(args, folder, args.iterations, 0).train()
        half = os.path.join(folder, f"checkpoint-{args.iterations // 2}")
        make(args, folder, args.iterations, args.iterations).train(resume_from_checkpoint=half)


if __name__ == "__main__":
    main()
