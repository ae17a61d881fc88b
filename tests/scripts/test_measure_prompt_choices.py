"""Which prompts test images choose: the script that measures it, on keys made by hand, and what it kept."""

import json
from pathlib import Path

import pytest
import torch

from clare.methods.dualprompt import DualPrompt, DualPromptSettings
from clare.methods.l2p import L2p, L2pSettings
from clare.registry import load_file
from clare.testing import world

ROOT = Path(__file__).parents[2]
script = load_file(ROOT / "scripts" / "measure_prompt_choices.py", "which measures prompts")


def directions(*places: int) -> torch.Tensor:
    """Return queries that point along these axes."""
    return torch.eye(24)[list(places)]


def test_slots_of_tasks_to_come_count_as_never_trained() -> None:
    settings = DualPromptSettings(num_tasks=4, num_general_blocks=1, num_expert_blocks=1)
    method = DualPrompt(world.tiny_backbone(), settings, 0)
    method.tasks = [("a",), ("b",)]
    method.keys.copy_(directions(0, 1, 2, 3))
    # Of the first task one image finds its slot and one that of a task to come, nearest of the learnt ones its own.
    queries = directions(0, 3, 1, 0) + 0.1 * directions(0, 0, 1, 0)
    found = script.figures_of(method, method, queries, torch.tensor([0, 0, 1, 1]))
    assert found == {
        "slots_never_trained": 0.25,
        "right_slot": 0.5,
        "right_slot_by_task": [0.5, 0.5],
        "right_slot_by_task_among_learnt": [1.0, 0.5],
    }


def test_prompts_as_they_were_drawn_were_never_trained() -> None:
    settings = L2pSettings(pool_size=4, prompt_length=1, num_chosen=2)
    method, fresh = (L2p(world.tiny_backbone(), settings, 0) for _ in range(2))
    method.keys.copy_(directions(0, 1, 2, 3))
    method.prompts[:2] += 1
    queries = directions(0, 0, 2, 3) + 0.1 * directions(1, 2, 3, 0)
    found = script.figures_of(method, fresh, queries, torch.zeros(4))
    assert found == {"num_prompts_never_trained": 2, "slots_never_trained": 0.5}


@pytest.mark.parametrize("name", ["dualprompt_keys", "l2p_choices"])
def test_what_was_kept_says_where_it_comes_from(name: str) -> None:
    for run in json.loads((ROOT / "results" / f"{name}.json").read_text())["runs"]:
        assert run.keys() >= {"command", "seed", "settings", "environment", "slots_never_trained"}
        assert run["environment"]["commit"]
        assert run["command"].startswith("clare train quickdraw-20x10 --method")
