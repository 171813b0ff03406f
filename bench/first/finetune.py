"""Fine-tuning of a vision transformer with frozen layers. One more is trained from the 13th step
on."""
import torch
import torchvision

import life


def main():
    args = life.arguments(batch=28)
    torch.manual_seed(args.seed)
    model = torchvision.models.VisionTransformer(
        image_size=128, patch_size=16, num_layers=8, num_heads=6, hidden_dim=384, mlp_dim=1536,
        num_classes=10).train()
    layers = model.encoder.layers
    for parameter in model.parameters():
        parameter.requires_grad = False
    for part in (*layers[5:], model.encoder.ln, model.heads):
        for parameter in part.parameters():
            parameter.requires_grad = True

    def make():
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)

    optimizer, criterion = make(), torch.nn.CrossEntropyLoss()
    life.begin()
    for step in range(args.steps):
        if step == 12:
            for parameter in layers[4].parameters():
                parameter.requires_grad = True
            optimizer = make()
        images = torch.randn(args.batch, 3, 128, 128)
        labels = torch.randint(0, 10, (args.batch,))
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        life.step(loss.item())


if __name__ == "__main__":
    main()
