"""The text example on a made encoder and made texts: 60 lines, each way learns, and claims keep their bits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clare.registry import load_file
from clare.sparse.allocator import Allocator

FILE = Path(__file__).parents[2] / "examples" / "allocate_text.py"
NUM_WORDS, WIDTH = 40, 16


class Layer(nn.Module):
    """A layer whose output passes through a module, as in a BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.output = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix and normalise."""
        outputs: Tensor = self.output(x + self.mix(x).tanh())
        return outputs


class Encoder(nn.Module):
    """What the example needs of a BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=WIDTH)
        self.words = nn.Embedding(NUM_WORDS, WIDTH)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([Layer(), Layer()])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """Return all tokens."""
        x = self.words(input_ids)
        for layer in self.encoder.layer:
            x = layer(x)
        return (x,)


def tokenizer(texts: list[str], **_: Any) -> dict[str, Tensor]:
    """Return texts of as many words each as tokens."""
    tokens = torch.tensor([[int(word) for word in text.split()] for text in texts])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def made_texts(classes: range) -> list[tuple[str, int]]:
    """Return texts of classes that share most of their words."""
    generator = torch.Generator().manual_seed(classes.start)
    ranges = [(label, torch.randint(3 * label, 3 * label + 20, (24, 6), generator=generator)) for label in classes]
    return [(" ".join(map(str, row.tolist())), label) for label, rows in ranges for row in rows]


@pytest.mark.parametrize("way", ["clare", "finetune", "frozen"])
def test_each_way_learns_two_tasks(way: str) -> None:
    module = load_file(FILE, "which a test reads")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = Encoder()
        pool = Allocator(module.attach(encoder, 4).named_parameters())
        before = encoder.words.weight.clone()
        rows = [
            module.learn(encoder, tokenizer, pool, made_texts(classes), way, 0.01, 4)
            for classes in (range(3), range(3, 6))
        ]
    assert [part.shape for part in rows] == [(3, WIDTH), (3, WIDTH)]
    assert torch.equal(encoder.words.weight, before)
    assert torch.equal(pool.values(), pool.initial) == (way == "frozen")
    assert pool.num_tasks == (2 if way == "clare" else 0)
    texts = made_texts(range(3, 6))
    right = (module.features(encoder, tokenizer, texts) @ rows[1].T).argmax(1) + 3
    assert float((right == torch.tensor([label for _, label in texts])).float().mean()) > 0.6
    if way == "clare":
        first, second = (pool.ledger.claim_of(task)[0] for task in (0, 1))
        assert set(first.tolist()).isdisjoint(second.tolist())
        assert torch.equal(pool.values()[first], pool.ledger.claim_of(0)[1])


def test_it_is_a_loop_of_sixty_lines() -> None:
    assert len(FILE.read_text().splitlines()) <= 60
