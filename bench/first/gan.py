"""A GAN with two optimizers: discriminator, then generator. It makes samples each 5th step."""
import torch

import life


def generator():
    layers = [torch.nn.ConvTranspose2d(64, 256, 4)]
    for had, makes in ((256, 128), (128, 64), (64, 32)):
        layers += [torch.nn.BatchNorm2d(had), torch.nn.ReLU(),
                   torch.nn.ConvTranspose2d(had, makes, 4, 2, 1, bias=False)]
    return torch.nn.Sequential(*layers, torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
                               torch.nn.ConvTranspose2d(32, 3, 4, 2, 1), torch.nn.Tanh())


def discriminator():
    layers = [torch.nn.Conv2d(3, 32, 3, 1, 1), torch.nn.LeakyReLU(0.2)]
    for had, makes in ((32, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(had, makes, 4, 2, 1, bias=False), torch.nn.BatchNorm2d(makes),
                   torch.nn.LeakyReLU(0.2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(256 * 64, 1))


def main():
    args = life.arguments(batch=48)
    torch.manual_seed(args.seed)
    makes, judges = generator(), discriminator()
    of_makes = torch.optim.Adam(makes.parameters(), 2e-4, (0.5, 0.999))
    of_judges = torch.optim.Adam(judges.parameters(), 2e-4, (0.5, 0.999))
    criterion = torch.nn.BCEWithLogitsLoss()
    right, wrong = torch.ones(args.batch, 1), torch.zeros(args.batch, 1)

    def noise():
        return torch.randn(args.batch, 64, 1, 1)

    life.begin()
    for step in range(args.steps):
        real = torch.randn(args.batch, 3, 64, 64).tanh()
        of_judges.zero_grad(set_to_none=True)
        fake = makes(noise()).detach()
        loss = criterion(judges(real), right) + criterion(judges(fake), wrong)
        loss.backward()
        of_judges.step()
        losses = [loss.item()]
        of_makes.zero_grad(set_to_none=True)
        loss = criterion(judges(makes(noise())), right)
        loss.backward()
        of_makes.step()
        losses.append(loss.item())
        if step % 5 == 4:
            makes.eval()
            with torch.no_grad():
                losses.append(makes(noise()).mean().item())
            makes.train()
        life.step(*losses)


if __name__ == "__main__":
    main()
