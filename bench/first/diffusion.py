"""A U-Net that removes noise of a random time step, with averaged weights and a sample each 10th
step."""
import copy

import torch

import life


def main():
    args = life.arguments(batch=20)
    torch.manual_seed(args.seed)
    model = life.unet(width=32, depth=3, inputs=3, outputs=3)
    averaged = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    life.begin()
    for step in range(args.steps):
        images = torch.randn(args.batch, 3, 64, 64).tanh()
        t = torch.randint(0, 1000, (args.batch,))
        noise, share = torch.randn_like(images), kept[t][:, None, None, None]
        seen = share.sqrt() * images + (1 - share).sqrt() * noise
        loss = torch.nn.functional.mse_loss(model(seen, t.float()), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(averaged.parameters(), model.parameters()):
                old.lerp_(new, 0.01)
        losses = [loss.item()]
        if step % 10 == 9:
            with torch.no_grad():
                x = torch.randn(2, 3, 64, 64)
                for at in (900.0, 600.0, 300.0, 0.0):
                    x = x - 0.3 * averaged(x, torch.full((2,), at))
                losses.append(x.mean().item())
        life.step(*losses)


if __name__ == "__main__":
    main()
