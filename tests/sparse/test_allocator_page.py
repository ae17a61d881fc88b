"""The code of the page on the allocator runs as it is printed."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

PAGE = Path(__file__).parents[2] / "docs" / "allocator.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(*places: int, **names: Any) -> dict[str, Any]:
    """Run some blocks of the page one after another, which see these names."""
    for place in places:
        exec(compile(BLOCKS[place], PAGE.name, "exec"), names)
    return names


def test_a_model_for_tables_learns_five_tasks_and_goes_on_from_what_was_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng(devices=[]):
        names = run(0, 1, 2, path=tmp_path / "pool.pt")
    pool, table, labels = names["pool"], names["table"], names["labels"]
    assert pool.num_tasks == 5
    assert capsys.readouterr().out.count("are free") == 5
    claimed = torch.cat([pool.ledger.claim_of(task)[0] for task in range(5)])
    assert len(claimed.unique()) == len(claimed) == pool.num_coordinates - pool.num_free
    answers = (F.normalize(names["body"](table), dim=1) @ F.normalize(names["rows"], dim=1).T).argmax(1)
    assert float((answers == labels).float().mean()) > 0.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_peft_is_allocated_saved_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from test_allocator_peft import answers, made_bert, sentences

    tasks, folder = [sentences(task) for task in (0, 1)], str(tmp_path)
    names = run(3, bert=made_bert(), tasks=tasks, folder=folder)
    expected, pool = answers(names["model"]), names["pool"]
    loaded = names["PeftModel"].from_pretrained(made_bert(), folder)
    torch.testing.assert_close(answers(loaded), expected)
    torch.testing.assert_close(answers(loaded.merge_and_unload()), expected, rtol=1e-5, atol=1e-5)
    assert pool.num_tasks == 2
    assert pool.ledger.lengths[0] == round(0.2 * pool.num_coordinates)
