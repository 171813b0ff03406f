"""A ResNet-50 and a GPT-style transformer in PyTorch, as ordinary programs write them."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def run(layers, x, recompute):
    """The layers one after the other. recompute: their activations are not kept."""
    for layer in layers:
        kept = recompute and not isinstance(layer, (nn.Flatten, nn.Linear))
        x = checkpoint(layer, x, use_reentrant=False) if kept else layer(x)
    return x


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet50(nn.Module):
    def __init__(self, recompute=False, small=False):
        super().__init__()
        self.recompute = recompute
        layers = [nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                                nn.ReLU(), nn.MaxPool2d(3, 2, 1))]
        inputs = 64
        stages = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
        for width, count, stride in stages[:1] if small else stages:
            for i in range(count):
                layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return run(self.layers, x, self.recompute)

    @staticmethod
    def data(batch, small):
        side = 32 if small else 224
        return torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norm1(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    WIDTH, DEPTH, HEADS = 768, 12, 12

    def __init__(self, recompute=False, small=False):
        super().__init__()
        words, width, depth, heads = (64, 32, 2, 2) if small else \
            (32768, self.WIDTH, self.DEPTH, self.HEADS)
        self.recompute = recompute
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        y = run(self.layers, self.words(x) + self.places(places), self.recompute)
        return self.head(self.norm(y))

    @staticmethod
    def data(batch, small):
        words = torch.randint(0, 64 if small else 32768, (batch, 16 if small else 1024))
        return words, words.roll(-1, 1)


class WideGpt(Gpt):
    """The width of GPT-2 large: more work for each byte of activations."""
    WIDTH, DEPTH, HEADS = 1280, 12, 20


MODELS = {"resnet50": ResNet50, "gpt": Gpt, "gpt1280": WideGpt}
