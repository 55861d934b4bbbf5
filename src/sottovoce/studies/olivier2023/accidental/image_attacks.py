"""L-infinity attacks on many networks of images at once, and who is right under them.

Everything has the shape `(networks, images, ...)`. Pixels stay in [0, 1]; perturbations within `eps`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sottovoce.studies.olivier2023.accidental.network_batch import Networks

Climb = Literal["cross-entropy", "margin"]
MOMENTUM, SHARE = 0.75, 0.75
"""Of AutoPGD: how much of a step is new, and how many steps must help before the next checkpoint."""
QUIET = 1e-8
"""A gradient whose largest entry is below this tells an attack nothing in 32-bit numbers."""


def right(networks: Networks, points: Tensor, labels: Tensor) -> Tensor:
    """`(networks, images)`, whether each network is right; labels `(networks, images)`."""
    with torch.no_grad():
        return networks.scores(points).argmax(dim=2) == labels


def reaches(share: Tensor, tau: float) -> Tensor:
    """Whether at least the share `tau` of the images is right, for each network; exactly that is enough."""
    return share.sum(dim=1) >= tau * share.shape[1] - 1e-6


def loss_of(scores: Tensor, labels: Tensor, climb: Climb) -> Tensor:
    """What an attack climbs, `(networks, images)`: a margin is above 0 where the network is wrong."""
    if climb == "cross-entropy":
        return cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    own = scores.gather(2, labels[..., None])[..., 0]
    return scores.scatter(2, labels[..., None], -torch.inf).amax(dim=2) - own


def gradients(
    networks: Networks, points: Tensor, labels: Tensor, climb: Climb, *, training: bool = False
) -> tuple[Tensor, Tensor]:
    """Losses, and their gradients to the pixels. No running statistic of the networks moves."""
    points = points.detach().requires_grad_()
    losses = loss_of(networks.scores(points, training=training, update=False), labels, climb)
    (found,) = torch.autograd.grad(losses.sum(), points)
    return losses.detach(), found


def near(points: Tensor, images: Tensor, eps: float) -> Tensor:
    """The nearest points within `eps` of the images, and in [0, 1]."""
    return torch.minimum(torch.maximum(points, images - eps), images + eps).clamp(0.0, 1.0)


def pgd(
    networks: Networks,
    images: Tensor,
    labels: Tensor,
    eps: float,
    steps: int,
    *,
    climb: Climb = "cross-entropy",
    source: torch.Generator | None = None,
    training: bool = False,
) -> Tensor:
    """Projected gradient descent from a random start, 2.5 radii in all: the last points."""
    points = images
    if source is not None:
        noise = torch.rand(images.shape, generator=source) * 2 - 1
        points = near(images + eps * noise.to(images.device), images, eps)
    size = 2.5 * eps / steps
    for _ in range(steps):
        _, found = gradients(networks, points, labels, climb, training=training)
        points = near(points + size * found.sign(), images, eps)
    return points


def auto_pgd(
    networks: Networks, images: Tensor, labels: Tensor, eps: float, steps: int, climb: Climb
) -> Tensor:
    """AutoPGD (Croce and Hein 2020): steps halve where they stop helping; the best points of each image."""
    points, size = images, torch.full(labels.shape, 2.0 * eps, device=images.device)
    before = points
    best_loss, found = gradients(networks, points, labels, climb)
    best, best_gradient = points, found
    losses, helped = best_loss, torch.zeros_like(best_loss)
    marks, last_best, last_size, since = _checkpoints(steps), best_loss.clone(), size.clone(), 0
    for step in range(steps):
        aim = near(points + size[..., None] * found.sign(), images, eps)
        moved = points + MOMENTUM * (aim - points) + (1 - MOMENTUM) * (points - before)
        before, points = points, near(moved if step else aim, images, eps)
        now, found = gradients(networks, points, labels, climb)
        helped, losses, since = helped + (now > losses), now, since + 1
        better = now > best_loss
        best_loss = torch.where(better, now, best_loss)
        best = torch.where(better[..., None], points, best)
        best_gradient = torch.where(better[..., None], found, best_gradient)
        if step + 1 in marks:
            stuck = (helped < SHARE * since) | ((last_size == size) & (last_best == best_loss))
            last_size, last_best = size.clone(), best_loss.clone()
            size = torch.where(stuck, size / 2, size)
            points = torch.where(stuck[..., None], best, points)
            before = torch.where(stuck[..., None], best, before)
            found = torch.where(stuck[..., None], best_gradient, found)
            losses = torch.where(stuck, best_loss, losses)
            helped, since = torch.zeros_like(helped), 0
    return best


def _checkpoints(steps: int) -> set[int]:
    """Steps after which AutoPGD looks back: at .22, then nearer and nearer, .06 apart at least."""
    places = [0.0, 0.22]
    while places[-1] < 1.0:
        places.append(places[-1] + max(places[-1] - places[-2] - 0.03, 0.06))
    return {ceil(round(place * steps, 6)) for place in places[1:]}


def square_search(
    networks: Networks, images: Tensor, labels: Tensor, eps: float, queries: int, source: torch.Generator
) -> Tensor:
    """A search by scores alone, after the Square attack: a random square is set to +eps or -eps, and kept
    where the margin grows. It needs no gradient, so that none can mislead it."""
    side = round(images.shape[2] ** 0.5)
    stripes = (torch.rand(images.shape[0], images.shape[1], side, generator=source) < 0.5).float() * 2 - 1
    start = stripes[:, :, None].expand(-1, -1, side, -1).flatten(2).to(images.device)
    points = near(images + eps * start, images, eps)
    with torch.no_grad():
        best = loss_of(networks.scores(points), labels, "margin")
        for query in range(queries):
            length = max(1, round(0.3 * side * (1 - query / queries)))
            window = _square(side, length, images.shape[:2], source).to(images.device)
            coin = torch.rand(*images.shape[:2], 1, generator=source) < 0.5
            sign = torch.where(coin, 1.0, -1.0).to(images.device)
            tried = near(torch.where(window, images + eps * sign, points), images, eps)
            now = loss_of(networks.scores(tried), labels, "margin")
            better = now > best
            best = torch.where(better, now, best)
            points = torch.where(better[..., None], tried, points)
    return points


def _square(side: int, length: int, shape: torch.Size, source: torch.Generator) -> Tensor:
    """A random square of each image as a mask, `(networks, images, pixels)`."""
    corner = torch.randint(0, side - length + 1, (2, *shape, 1), generator=source)
    places = torch.arange(side)
    rows, columns = ((places >= one) & (places < one + length) for one in corner)
    window: Tensor = (rows[..., :, None] & columns[..., None, :]).flatten(2)
    return window


def quiet_share(networks: Networks, images: Tensor, labels: Tensor) -> Tensor:
    """Of each network: the share of images whose gradient of the cross-entropy is near zero."""
    _, found = gradients(networks, images, labels, "cross-entropy")
    return (found.abs().amax(dim=2) < QUIET).float().mean(dim=1)


Attack = Callable[[Networks, Tensor, Tensor], Tensor]
"""From networks, images and labels to points."""


def robust_under(
    networks: Networks, images: Tensor, labels: Tensor, attacks: list[Attack], tau: float
) -> Tensor:
    """`(networks,)`: whether the share `tau` of the images is right as it is and under every attack.

    images `(images, pixels)`, the same for all. A network that falls below is not attacked further.
    """
    count, left = len(networks), torch.arange(len(networks), device=images.device)
    still = right(networks, images.expand(count, *images.shape), labels.expand(count, -1))
    for attack in attacks:
        left = left[reaches(still[left], tau)]
        if len(left):
            some = networks.select(left)
            x, y = images.expand(len(left), *images.shape), labels.expand(len(left), -1)
            still[left] &= right(some, attack(some, x, y), y)
    return reaches(still, tau)
