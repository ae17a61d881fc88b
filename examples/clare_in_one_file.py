"""CLARE in one file of plain PyTorch, to be read beside the paper.

Fu, Lou, Liao, Yu: "CLARE: Scalable Class-Incremental Continual Learning via a Sparsity-Based Framework".

    python examples/clare_in_one_file.py        # three tasks of ten drawings each, two minutes on a CPU

It needs torch and timm. The package, whose tests feed both the same batches, must choose the same coordinates and end
with the same numbers. As in the paper, alpha are the adapters, alpha_0 their initial values, phi the classifier's rows.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import timm
import torch
import torch.nn.functional as F
from timm.models import VisionTransformer
from torch import Tensor

Batches = Callable[[str, int], Iterable[tuple[Tensor, Tensor]]]
"""(stage, epoch) -> images and labels, where the task's classes count from 0."""


@dataclass(frozen=True)
class Recipe:
    """The paper's numbers, and a word for what its ablations change and for most of what its text leaves open."""

    sparsity: float = 0.95  # rho
    probe_epochs: int = 5
    epochs: int = 20
    learning_rate: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 5e-4
    penalty_weight: float = 1e-4  # lambda
    penalty: str = "l1-proximal"  # or l1-subgradient, l2
    probe_decay: str = "initial"  # Stage 1 decays towards the origin, or towards zero
    probe_head: str = "copy"  # Stage 1 trains a copy of the rows; or Stage 2 keeps what it made of them; or frozen
    contrast: str = "task"  # the loss sees the task's classes; or all seen, whose old rows are fixed; or seen-trained
    origin: str = "initial"  # movement is measured from alpha_0; or from the start of the task; or from zero
    select_unmoved: bool = False  # what did not move is never chosen; the printed formula takes it where tau is zero
    mask: str = "learnt"  # or random, none
    capacity_aware: bool = True
    constant_share: float = 0.05
    two_stage: bool = True
    start: str = "shared"  # or initial: independent tuning
    merge: str = "state"  # or literal: delta added to delta, as printed
    bottleneck: int = 64
    adapter_scale: float = 0.1
    dropout: float = 0.1
    cosine_scale: float = 20.0


def initial_adapters(vit: VisionTransformer, bottleneck: int) -> Tensor:
    """Draw alpha_0, all blocks' adapters as one vector of coordinates: what goes up is zero, so nothing changes yet."""
    width, bound = vit.embed_dim, 1 / math.sqrt(vit.embed_dim)
    zeros = torch.zeros(bottleneck + width * bottleneck + width)
    downs = [torch.empty(bottleneck * width).uniform_(-bound, bound) for _ in vit.blocks]
    return torch.cat([part for down in downs for part in (down, zeros)])


def adapted_features(vit: VisionTransformer, alpha: Tensor, images: Tensor, recipe: Recipe, train: bool) -> Tensor:
    """Return f(x; theta_0, alpha): beside every frozen MLP, a small one of the adapter adds to the same stream."""
    width, hidden = vit.embed_dim, recipe.bottleneck
    x = vit.norm_pre(vit._pos_embed(vit.patch_embed(images)))
    for block, own in zip(vit.blocks, alpha.view(len(vit.blocks), -1), strict=True):
        down, down_bias, up, up_bias = own.split([hidden * width, hidden, width * hidden, width])
        x = x + block.ls1(block.attn(block.norm1(x)))
        inner = F.dropout(F.relu(F.linear(x, down.view(hidden, width), down_bias)), recipe.dropout, train)
        adapter = recipe.adapter_scale * F.linear(inner, up.view(width, hidden), up_bias)
        x = x + block.ls2(block.mlp(block.norm2(x))) + adapter
    return vit.forward_head(vit.norm(x), pre_logits=True)


def select(scores: Tensor, candidates: Tensor, budget: int, unmoved: bool) -> Tensor:
    """Mark the candidates that reach the k-th largest score of all layers together, with all that tie at it."""
    moved = candidates if unmoved else candidates & (scores > 0)
    k = min(budget, int(moved.sum()))
    tau = scores[moved].topk(k).values[-1] if k else math.inf
    return moved & (scores >= tau)


class Clare:
    """One frozen backbone, one shared adapter, one classifier of all classes seen, and a ledger of what is free."""

    def __init__(self, vit: VisionTransformer, alpha_0: Tensor, recipe: Recipe) -> None:
        self.vit, self.alpha_0, self.recipe = vit.requires_grad_(False).eval(), alpha_0, recipe
        self.shared, self.free = alpha_0.clone(), torch.ones_like(alpha_0, dtype=torch.bool)
        self.claims: list[Tensor] = []
        self.phi = alpha_0.new_zeros(0, vit.num_features)

    def logits(self, images: Tensor) -> Tensor:
        """Return the cosines with all rows: no mask, and no name of a task."""
        features = adapted_features(self.vit, self.shared, images, self.recipe, train=False)
        return F.normalize(features, dim=1) @ F.normalize(self.phi, dim=1).T

    def learn(self, new: Tensor, batches: Batches, generator: torch.Generator | None = None) -> None:
        """Learn a task, whose classes get these new rows; only a random mask draws from the generator."""
        recipe, new, old = self.recipe, new.clone(), self.phi.clone()
        start = self.shared if recipe.start == "shared" else self.alpha_0
        origin = {"initial": self.alpha_0, "start": start, "zero": torch.zeros_like(start)}[recipe.origin]
        has_limits = recipe.capacity_aware and recipe.mask != "none"
        candidates = self.free if has_limits else torch.ones_like(self.free)
        alpha = start.clone()
        if recipe.two_stage:
            # Stage 1, find the mask: nothing stays of what it trains.
            rows = [new, old] if recipe.probe_head == "keep" else [new.clone(), old.clone()]
            if recipe.mask == "learnt" and candidates.any():
                self.train("probe", [alpha, *rows], candidates, batches, origin)
            chosen = self.choose(alpha, origin, candidates, generator)
            # Stage 2, learn: from the start again, with a fresh optimiser, within the mask.
            alpha = start.clone()
            self.train("train", [alpha, new, old], chosen, batches, None)
        else:
            self.train("train", [alpha, new, old], candidates, batches, None)
            chosen = self.choose(alpha, origin, candidates, generator)
        # Merge; what is chosen is never free again.
        delta = torch.where(chosen, alpha - self.alpha_0, 0.0)
        merged = torch.where(chosen, alpha, self.shared) if recipe.merge == "state" else self.shared + delta
        self.shared, self.free, self.phi = merged, self.free & ~chosen, torch.cat([old, new])
        self.claims.append(chosen)

    def choose(self, alpha: Tensor, origin: Tensor, candidates: Tensor, generator: torch.Generator | None) -> Tensor:
        """Mark the task's coordinates: a share 1 - rho of what is free, at least one."""
        recipe, num = self.recipe, int(candidates.sum())
        if recipe.mask == "none" or num == 0:
            return candidates
        share = 1 - recipe.sparsity if recipe.capacity_aware else recipe.constant_share
        budget = min(num, max(1, round(share * num)))
        if recipe.mask == "random":
            drawn = candidates.nonzero()[:, 0][torch.randperm(num, generator=generator)[:budget]]
            return torch.zeros_like(candidates).index_fill(0, drawn, True)
        return select((alpha - origin).abs(), candidates, budget, recipe.select_unmoved)

    def train(self, stage: str, state: list[Tensor], mask: Tensor, batches: Batches, origin: Tensor | None) -> None:
        """Train alpha within the mask, new rows and maybe old ones, in place; only Stage 1 is pulled to the origin."""
        recipe, momenta = self.recipe, [torch.zeros_like(values) for values in state]
        epochs = recipe.probe_epochs if stage == "probe" else recipe.epochs
        is_alone = stage == "probe" and recipe.probe_head == "frozen"
        num_trained = 1 if is_alone else 3 if recipe.contrast == "seen-trained" and len(state[2]) else 2
        for epoch in range(epochs):
            rate = recipe.learning_rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
            for images, labels in batches(stage, epoch):
                alpha, new, old = leaves = [values.detach().requires_grad_() for values in state]
                features = adapted_features(self.vit, alpha, images, recipe, train=True)
                phi = new if recipe.contrast == "task" else torch.cat([new, old])
                cosines = F.normalize(features, dim=1) @ F.normalize(phi, dim=1).T
                loss = F.cross_entropy(recipe.cosine_scale * cosines, labels)
                gradients = torch.autograd.grad(loss, leaves[:num_trained])
                with torch.no_grad():
                    # The update is masked, not the gradient: decay and momentum move what has no gradient.
                    moved = self.moved(state[0], gradients[0], momenta[0], rate, origin)
                    state[0].copy_(torch.where(mask, moved, state[0]))
                    for rows, gradient, momentum in zip(state[1:], gradients[1:], momenta[1:], strict=False):
                        rows.copy_(self.moved(rows, gradient, momentum, rate, None))

    def moved(self, values: Tensor, slope: Tensor, momentum: Tensor, rate: float, origin: Tensor | None) -> Tensor:
        """Return where a step of SGD moves values, with Stage 1's pull to the origin where there is one."""
        recipe, pull = self.recipe, self.recipe.weight_decay * values
        if origin is not None:
            offset = values - origin
            pull = recipe.weight_decay * offset if recipe.probe_decay == "initial" else pull
            forms = {"l1-subgradient": offset.sign(), "l2": 2 * offset}
            pull = pull + recipe.penalty_weight * forms.get(recipe.penalty, 0)
        momentum.mul_(recipe.momentum).add_(slope + pull)
        moved = values - rate * momentum
        if origin is None or recipe.penalty != "l1-proximal":
            return moved
        # As strong as a subgradient under momentum; but what does not move is the origin to the bit.
        offset, limit = moved - origin, rate * recipe.penalty_weight / (1 - recipe.momentum)
        return torch.where(offset.abs() <= limit, origin, moved - limit * offset.sign())


def demonstrate(num_tasks: int = 3, num_classes: int = 10) -> None:
    """Learn embedded drawings of classes that the embedded backbone was not pretrained on, task after task."""
    torch.manual_seed(0)
    package = Path(__file__).parents[1] / "src/clare"
    vit = timm.create_model("vit_tiny_patch16_224", img_size=28, patch_size=7, in_chans=1, depth=6, num_classes=0)
    timm.models.load_checkpoint(vit, package / "backbones/embedded/quickdraw_vit.safetensors")
    # 100 images of each of 345 classes, behind 128 bytes; the backbone was pretrained on some, but on none of these.
    pixels = bytearray(ZipFile(package / "data/embedded/quickdraw.npz").read("images.npy")[128:])
    new = [1, 3, 5, 13, 17, 18, 19, 21, 22, 24, 25, 29, 30, 31, 32]
    new += [33, 34, 37, 38, 40, 41, 43, 45, 46, 47, 48, 51, 53, 58, 60]
    images = torch.frombuffer(pixels, dtype=torch.uint8).view(345, 100, 1, 28, 28)[new].float() / 127.5 - 1
    labels = torch.arange(num_classes).repeat_interleave(80)
    recipe = Recipe(learning_rate=0.1, probe_epochs=2, epochs=5, bottleneck=32)
    clare = Clare(vit, initial_adapters(vit, recipe.bottleneck), recipe)
    for task in range(num_tasks):
        own, seen = images[task * num_classes :][:num_classes, :80].flatten(0, 1), (task + 1) * num_classes
        batches = [(own[part], labels[part]) for part in torch.randperm(len(own)).split(32)]
        clare.learn(torch.empty(num_classes, 192).uniform_(-0.07, 0.07), lambda *_, own=batches: own)
        answers = clare.logits(images[:seen, 80:].flatten(0, 1)).argmax(1).view(seen, -1)
        accuracy = (answers == torch.arange(seen)[:, None]).float().mean()
        print(f"task {task + 1}: {accuracy:.1%} of {seen} classes; {int(clare.free.sum())} coordinates are free")


if __name__ == "__main__":
    demonstrate()
