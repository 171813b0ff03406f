"""BERT under Hugging Face's Trainer. Two workers, an evaluation each 6th step, a save each 8th
step."""
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402

import life  # noqa: E402

LENGTH, TOKENS = 128, 4000


class Tokens(torch.utils.data.Dataset):
    """Sequences that depend on their index only."""

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(self.seed * 1000003 + index)
        drawn = torch.randint(0, TOKENS, (LENGTH,), generator=draw)
        return {"input_ids": drawn, "labels": drawn}


class Steps(transformers.TrainerCallback):
    def __init__(self):
        self.evaluated = []

    def on_train_begin(self, args, state, control, **kwargs):
        life.begin()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            life.step(logs["loss"], *self.evaluated)
            self.evaluated = []
        elif "eval_loss" in logs:
            self.evaluated = [logs["eval_loss"]]


def main():
    args = life.arguments(batch=10)
    torch.manual_seed(args.seed)
    transformers.utils.logging.set_verbosity_error()
    model = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=TOKENS, hidden_size=256, num_hidden_layers=6, num_attention_heads=4,
        intermediate_size=1024, max_position_embeddings=LENGTH))
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder, max_steps=args.steps, per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=args.batch, logging_steps=1, logging_nan_inf_filter=False,
            eval_strategy="steps", eval_steps=6, save_strategy="steps", save_steps=8,
            save_total_limit=1, dataloader_num_workers=2, report_to=[], seed=args.seed,
            use_cpu=True, disable_tqdm=True, warmup_steps=4)
        transformers.Trainer(model=model, args=settings, callbacks=[Steps()],
                             train_dataset=Tokens(1000 * args.batch, 1),
                             eval_dataset=Tokens(3 * args.batch, 2)).train()


if __name__ == "__main__":
    main()
