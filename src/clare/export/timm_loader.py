"""Load this classifier with timm, torch and safetensors alone: `model, classes = load()`."""

import hashlib
import json
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn


class AdaptedBlock(nn.Module):
    """A block of the ViT with an adapter beside its MLP."""

    def __init__(self, block: nn.Module, weights: dict[str, Tensor], scale: float) -> None:
        super().__init__()
        self.block, self.scale = block, scale
        self.weights = nn.ParameterDict({name: nn.Parameter(value, False) for name, value in weights.items()})

    def forward(self, x: Tensor) -> Tensor:
        """Run attention, then the MLP and the adapter side by side."""
        block: Any = self.block
        weights = self.weights
        x = x + block.drop_path1(block.ls1(block.attn(block.norm1(x))))
        hidden = F.linear(x, weights["down"], weights["down_bias"]).relu()
        update: Tensor = block.drop_path2(block.ls2(block.mlp(block.norm2(x))))
        return x + update + self.scale * F.linear(hidden, weights["up"], weights["up_bias"])


class Classifier(nn.Module):
    """Images in 0..1, float (B, C, S, S), to logits; `probabilities` are the softmax of these."""

    mean: Tensor
    std: Tensor

    def __init__(self, vit: nn.Module, rows: Tensor, config: dict[str, Any]) -> None:
        super().__init__()
        self.vit, self.rows = vit, nn.Parameter(rows, False)
        head, features = config["head"], config["features"]
        self.form, self.scale = str(head["form"]), float(head["scale"])
        self.num_blocks, self.with_patches = int(features["blocks"]), bool(features["patches"])
        self.from_centre, self.num_views = bool(features["centre"]), int(features["views"])
        self.inverts = config.get("invert") == "bright-border"
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(config[name], dtype=torch.float32)[:, None, None])

    def darkened(self, images: Tensor) -> Tensor:
        """Turn images with three in four outermost pixels bright into their negatives, if the model was taught so."""
        means = images.mean(1)
        border = torch.cat([means[:, 0], means[:, -1], means[:, 1:-1, 0], means[:, 1:-1, -1]], 1)
        is_bright = ((border > 0.5).to(means).mean(1) >= 0.75) & self.inverts
        return torch.where(is_bright[:, None, None, None], 1 - images, images)

    def views(self, images: Tensor) -> list[Tensor]:
        """Return the images as they are, and ever closer views of them."""
        views, size = [images], images.shape[-1]
        for index in range(1, self.num_views):
            border = round(3 / 14 * size * index / (self.num_views - 1))
            inner = slice(border, size - border)
            views.append(F.interpolate(images[..., inner, inner], (size, size), mode="bicubic", align_corners=False))
        return views

    def features(self, images: Tensor) -> Tensor:
        """Return the feature of the last block, or parts of length one from several blocks side by side."""
        vit: Any = self.vit
        if self.num_blocks == 1 and not self.with_patches:
            usual: Tensor = vit.forward_head(vit.forward_features(images), pre_logits=True)
            return usual
        tokens = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
        parts: list[Tensor] = []
        for index, block in enumerate(vit.blocks):
            tokens = block(tokens)
            if index >= len(vit.blocks) - self.num_blocks:
                normal = vit.norm(tokens)
                if self.with_patches:
                    parts.append(vit.fc_norm(self.patches(normal[:, vit.num_prefix_tokens :]).mean(1)))
                parts.append(vit.forward_head(normal, pre_logits=True))
        return torch.cat([F.normalize(part, dim=1) for part in parts], 1)

    def patches(self, tokens: Tensor) -> Tensor:
        """Return the patches whose mean is read: all, or those without a quarter of them on every side."""
        vit: Any = self.vit
        height, width = vit.patch_embed.grid_size
        top, left = (height // 4, width // 4) if self.from_centre else (0, 0)
        inner = tokens.reshape(tokens.shape[0], height, width, -1)[:, top : height - top, left : width - left]
        return inner.flatten(1, 2)

    def forward(self, images: Tensor) -> Tensor:
        """Return a logit for each class."""
        views = self.views((self.darkened(images) - self.mean) / self.std)
        features = torch.stack([self.features(view) for view in views]).mean(0)
        if self.form == "cosine":
            return F.normalize(features, dim=1) @ F.normalize(self.rows, dim=1).T
        if self.form.startswith("unit-"):
            features = F.normalize(features, dim=1)
        if self.form.endswith("linear"):
            return F.linear(features, self.rows[:, :-1], self.rows[:, -1])
        parts = self.rows.view(len(self.rows), -1, features.shape[1] + 1)
        products = F.linear(features, parts[..., :-1].flatten(0, 1), parts[..., -1].flatten())
        products = products.view(-1, *parts.shape[:2])
        return products[..., 0] + 0.5 * products[..., 1:].square().sum(2)

    def probabilities(self, images: Tensor) -> Tensor:
        """Return a probability for each class."""
        return (self.scale * self.forward(images)).softmax(1)


def fingerprint(vit: Any) -> str:
    """Return a hash over the number of attention heads, and names, shapes and bytes of all weights."""
    digest = hashlib.sha256(f"{vit.blocks[0].attn.num_heads}".encode())
    for name, tensor in sorted(vit.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.float().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def load(folder: str | Path = Path(__file__).parent, weights: str | Path | None = None) -> tuple[Any, list[str]]:
    """Return the classifier and its class names; `weights` is the backbone's file where it is not timm's own."""
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    backbone, tensors = config["backbone"], load_file(folder / "classifier.safetensors")
    if weights is None and backbone["file"]:
        weights = folder / backbone["file"]
    vit: Any = timm.create_model(backbone["timm_name"], weights is None, num_classes=0, **backbone["sizes"])
    if weights is not None:
        vit.load_state_dict(load_file(weights))
    if fingerprint(vit) != backbone["fingerprint"]:
        raise ValueError(f"the classifier was made for the backbone {backbone['fingerprint']}; give load its weights")
    vit.load_state_dict({key[9:]: value for key, value in tensors.items() if key.startswith("backbone.")}, strict=False)
    for index in range(len(vit.blocks) if config["adapter"] else 0):
        start = f"adapter.{index}."
        own = {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
        vit.blocks[index] = AdaptedBlock(vit.blocks[index], own, config["adapter"]["scale"])
    rows = tensors["head.rows"]
    if "head.last" in tensors:
        rows = torch.cat([rows.float() + tensors["head.centre"], tensors["head.last"]], -1).flatten(1)
    return Classifier(vit, rows, config).eval(), config["classes"]
