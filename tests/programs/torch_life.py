"""Trainings that do more than repeat one iteration.

`torch_life.py MANNER...` trains in each of these manners. It prints one line of results for each,
which depend on the manner only.

Each takes about a second. Blocks are large enough to be managed.
"""
import os
import signal
import subprocess
import sys
import tempfile
import threading

import torch
import torch.multiprocessing
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

PIXELS = 48
BATCH = 16


class Images(Dataset):
    """The content of each item is a function of its number."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        ramp = torch.arange(3 * PIXELS * PIXELS, dtype=torch.float32)
        return torch.sin(ramp * (0.001 + index * 0.0001)).view(3, PIXELS, PIXELS), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 24, 3, padding=1)
        self.norm = nn.BatchNorm2d(24)
        self.second = nn.Conv2d(24, 24, 3, padding=1)
        self.third = nn.Conv2d(24, 32, 3, stride=2, padding=1)
        self.wide = nn.Linear(32 * 8 * 8, 256)
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(x + self.second(x))
        x = F.adaptive_avg_pool2d(F.relu(self.third(x)), 8)
        return self.last(F.relu(self.wide(x.flatten(1))))


class Training:
    def __init__(self, seed=1):
        torch.manual_seed(seed)
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.losses = []

    def backward(self, batch, share=1.0):
        loss = F.cross_entropy(self.net(batch[0]), batch[1]) * share
        loss.backward()
        self.losses.append(float(loss))

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(batch)
        self.optimizer.step()

    def result(self):
        weights = sum(float(p.double().sum()) for p in self.net.parameters())
        return [f"{weights:.17g}"] + [f"{loss:.17g}" for loss in self.losses[-3:]]


def batches(count, **kwargs):
    return list(DataLoader(Images(count), batch_size=BATCH, **kwargs))


def train_some(seed, iterations):
    training, data = Training(seed), batches(2 * BATCH)
    for i in range(iterations):
        training.step(data[i % 2])
    return training.result()


def epochs():
    """Trains with a last partial batch, evaluates, and trains again."""
    training, data, right = Training(), batches(8 * BATCH + 5), []
    for _ in range(3):
        training.net.train()
        for batch in data:
            training.step(batch)
        training.net.eval()
        with torch.no_grad():
            right.append(sum(int((training.net(x).argmax(1) == y).sum()) for x, y in data[:4]))
    return training.result() + right


def accumulation():
    training, data = Training(), batches(4 * BATCH)
    for _ in range(6):
        training.optimizer.zero_grad(set_to_none=True)
        for batch in data:
            training.backward(batch, 0.25)
        training.optimizer.step()
    return training.result()


def buckets():
    """An LSTM with lengths in no order."""
    torch.manual_seed(3)
    lstm, head = nn.LSTM(64, 96), nn.Linear(96, 64)
    optimizer = torch.optim.SGD([*lstm.parameters(), *head.parameters()], lr=0.1)
    lengths = [(40, 60, 80)[i] for i in torch.randint(0, 3, (20,)).tolist()]
    loss = None
    for length in lengths:
        x = torch.randn(length, 24, 64)
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(head(lstm(x)[0]), x.roll(1, 0))
        loss.backward()
        optimizer.step()
    return [f"{float(loss):.17g}"]


def workers():
    """Two forked workers load the data, anew in each epoch."""
    training = Training()
    for _ in range(3):
        for batch in DataLoader(Images(6 * BATCH), batch_size=BATCH, num_workers=2,
                                multiprocessing_context="fork"):
            training.step(batch)
    return training.result()


def spawned(queue, seed):
    queue.put(train_some(seed, 6))


def processes():
    """Runs commands and a spawned trainer while it trains."""
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    child = context.Process(target=spawned, args=(queue, 5))
    child.start()
    training, data, heard = Training(), batches(2 * BATCH), []
    for i in range(12):
        training.step(data[i % 2])
        if i % 4 == 3:
            done = subprocess.run(["cat"], input=bytes(300000), stdout=subprocess.PIPE, check=True)
            heard.append(len(done.stdout))
    result = queue.get()
    child.join()
    return training.result() + heard + result + [child.exitcode]


def threads():
    """Three trainings at a time, each in its own thread."""
    results = [None] * 3
    made = [Training(7 + i) for i in range(3)]
    data = batches(2 * BATCH)

    def work(i):
        for k in range(10):
            made[i].step(data[k % 2])
        results[i] = made[i].result()
    started = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(results, [])


def checkpoint():
    """Saves in the middle, loads into a new model, and resumes. Also stores the arrays in plain
    files."""
    training, data = Training(), batches(2 * BATCH)
    for i in range(8):
        training.step(data[i % 2])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        torch.save({"net": training.net.state_dict(),
                    "optimizer": training.optimizer.state_dict()}, path)
        for i in range(4):
            training.step(data[i % 2])
        resumed = Training(99)
        state = torch.load(path)
        resumed.net.load_state_dict(state["net"])
        resumed.optimizer.load_state_dict(state["optimizer"])
        for i in range(4):
            resumed.step(data[i % 2])
        raw = os.path.join(folder, "weights")
        big = resumed.net.wide.weight.detach().numpy()
        big.tofile(raw)
        with open(raw, "rb", buffering=0) as file:
            again = torch.empty(big.size)
            assert file.readinto(memoryview(again.numpy()).cast("B")) == big.nbytes
        same = bool((again.view_as(resumed.net.wide.weight) == resumed.net.wide.weight).all())
    return training.result() + resumed.result() + [same]


def exceptions():
    """The forward pass fails at times, as by a bad sample. The training goes on."""
    training, data, failed = Training(), batches(2 * BATCH), 0

    def fail(*_):
        raise ValueError("bad sample")
    for i in range(18):
        handle = training.net.third.register_forward_hook(fail) if i % 5 == 4 else None
        try:
            training.step(data[i % 2])
        except ValueError:
            failed += 1
        finally:
            if handle:
                handle.remove()
    return training.result() + [failed]


def interrupt():
    """Ctrl-C at any moment. The training returns to its last snapshot and goes on."""
    training, data, interrupted = Training(), batches(2 * BATCH), 0
    done, target = 0, 12
    snapshot = None
    while done < target:
        try:
            if done % 4 == 0:
                snapshot = {k: v.clone() for k, v in training.net.state_dict().items()}
                training.optimizer = torch.optim.Adam(training.net.parameters(), lr=1e-3)
            if done == 6 and interrupted < 3:
                signal.setitimer(signal.ITIMER_REAL, 0.013 * (1 + interrupted))
                while True:
                    training.step(data[0])
            training.step(data[done % 2])
            done += 1
        except KeyboardInterrupt:
            interrupted += 1
            training.net.load_state_dict(snapshot)
            training.optimizer = torch.optim.Adam(training.net.parameters(), lr=1e-3)
            done = 4
    return training.result() + [interrupted]


def execute():
    """The program executes another one, which trains, too."""
    first = train_some(11, 6)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, "after_exec", *first])


def after_exec():
    arguments = sys.argv[2:]
    del sys.argv[2:]
    return arguments + train_some(12, 10)


MANNERS = [epochs, accumulation, buckets, workers, processes, threads, checkpoint, exceptions,
           interrupt, execute]


def to_interrupt(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGALRM, to_interrupt)
    torch.set_num_threads(1)
    if sys.argv[1] == "after_exec":
        print("execute", *after_exec(), flush=True)
        return
    names = {manner.__name__: manner for manner in MANNERS}
    for name in sys.argv[1:]:
        print(name, *names[name](), flush=True)


if __name__ == "__main__":
    main()
