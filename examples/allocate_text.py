"""CLARE's principle on a frozen text encoder, in a plain PyTorch loop; `pip install clare transformers`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from clare.sparse.allocator import Allocator

Texts = list[tuple[str, int]]  # each with the number of its class


def attach(encoder: Any, width: int) -> nn.ModuleList:
    """Freeze a BERT and put a bottleneck that begins at zero behind every layer."""
    encoder.requires_grad_(False).eval()
    size, adapters = encoder.config.hidden_size, nn.ModuleList()
    for layer in encoder.encoder.layer:
        adapter = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))
        adapter[2].load_state_dict({name: value * 0 for name, value in adapter[2].state_dict().items()})
        layer.output.register_forward_hook(lambda _, inputs, output, adapter=adapter: output + adapter(output))
        adapters.append(adapter)
    return adapters


def features(encoder: Any, tokenizer: Any, texts: Texts) -> Tensor:
    """Return the mean over each text's tokens, of length one."""
    tokens = tokenizer([text for text, _ in texts], padding=True, truncation=True, max_length=64, return_tensors="pt")
    return F.normalize((encoder(**tokens)[0] * tokens["attention_mask"][..., None]).sum(1), dim=1)


def means(encoder: Any, tokenizer: Any, texts: Texts) -> Tensor:
    """Return the mean feature of every class, in the order of their numbers."""
    with torch.no_grad():
        found = torch.cat([features(encoder, tokenizer, texts[at : at + 256]) for at in range(0, len(texts), 256)])
    labels = torch.tensor([label for _, label in texts])
    return torch.stack([F.normalize(found[labels == label].mean(0), dim=0) for label in labels.unique()])


def learn(encoder: Any, tokenizer: Any, pool: Allocator, texts: Texts, way: str, rate: float, epochs: int) -> Tensor:
    """Learn one task in the way of `clare`, `finetune` or `frozen`, and return the rows of its classes."""
    rows, first = nn.Parameter(means(encoder, tokenizer, texts)), min(label for _, label in texts)

    def run(optimizer: Optimizer, num_epochs: int) -> None:
        for batch in (batch for _ in range(num_epochs) for batch in torch.randperm(len(texts)).split(32)):
            chosen = [texts[index] for index in batch]
            logits = 20 * features(encoder, tokenizer, chosen) @ F.normalize(rows, dim=1).T
            optimizer.zero_grad()
            F.cross_entropy(logits, torch.tensor([label - first for _, label in chosen])).backward()
            optimizer.step()

    if way == "finetune":
        run(Adam([*pool.parameters, rows], rate), epochs)
    if way == "clare":
        with pool.probe(optimizer := Adam([*pool.parameters, rows], rate), share=0.05, penalty=1e-4):
            run(optimizer, max(1, epochs // 4))
        with pool.train(optimizer := Adam([*pool.parameters, rows], rate)):
            run(optimizer, epochs)
    return means(encoder, tokenizer, texts)
