"""The allocator on a LoRA model of PEFT that the Trainer of Hugging Face trains."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import AdamW

from clare.sparse.allocator import Allocator

pytestmark = pytest.mark.slow


def made_bert() -> Any:
    """Return a tiny BERT for two classes."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=2, **shape))


def made_model() -> Any:
    """Return that BERT with LoRA in its queries and values."""
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], lora_dropout=0.0)
    return get_peft_model(made_bert(), lora)


def sentences(task: int) -> list[dict[str, Tensor]]:
    """Return made sentences of a task, whose class is told by their words."""
    generator = torch.Generator().manual_seed(task)
    made = []
    for label in (0, 1):
        words = torch.randint(10 + 20 * label, 25 + 20 * label, (16, 8), generator=generator)
        made += [{"input_ids": row, "labels": torch.tensor(label)} for row in words]
    return made


def trained(model: Any, task: int, optimizer: AdamW, folder: Path) -> None:
    """Let the Trainer take eight steps."""
    from transformers import Trainer, TrainingArguments

    options = {"max_steps": 8, "per_device_train_batch_size": 8, "report_to": [], "save_strategy": "no"}
    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=True, disable_tqdm=True, max_grad_norm=1.0, seed=task, **options
    )
    Trainer(model, arguments, train_dataset=sentences(task), optimizers=(optimizer, None)).train()


def answers(model: Any) -> Tensor:
    """Return the logits of one sentence of each task."""
    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.stack([sentences(task)[0]["input_ids"] for task in (0, 1)])).logits


@pytest.mark.filterwarnings("ignore")
def test_lora_of_peft_is_claimed_task_by_task_saved_loaded_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from peft import PeftModel

    model = made_model()
    bare = model.get_base_model()
    pool = Allocator((name, value) for name, value in model.named_parameters() if "lora_" in name)
    after: list[Tensor] = []
    for task in (0, 1):
        with pool.probe(optimizer := AdamW(pool.parameters, 0.05), share=0.2):
            trained(model, task, optimizer, tmp_path)
        with pool.train(optimizer := AdamW(pool.parameters, 0.05, weight_decay=0.1)):
            trained(model, task, optimizer, tmp_path)
        after.append(pool.values())
    first, second = (pool.ledger.claim_of(task)[0] for task in (0, 1))
    assert set(first.tolist()).isdisjoint(second.tolist())
    assert len(first) == round(0.2 * pool.num_coordinates)
    assert torch.equal(after[0][first], after[1][first])
    assert not torch.equal(after[0], after[1])
    untouched = torch.ones(pool.num_coordinates, dtype=torch.bool)
    untouched[torch.cat([first, second])] = False
    assert torch.equal(pool.values()[untouched], pool.initial[untouched])

    expected = answers(model)
    model.save_pretrained(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(made_model().unload(), tmp_path / "adapter")
    torch.testing.assert_close(answers(loaded), expected)
    torch.testing.assert_close(answers(loaded.merge_and_unload()), expected, rtol=1e-5, atol=1e-5)
    assert bare is model.get_base_model()
