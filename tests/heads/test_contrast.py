"""Rows of earlier classes stand beside the task's own in a place of fixed shape."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from head_steps import head_of

from clare.heads.contrast import Contrast
from clare.heads.head import Head


def opened_head(num_rows: int, num_new: int) -> Head:
    """Return a head with finished rows and an open block."""
    generator = torch.Generator().manual_seed(0)
    head = head_of(4, scale=10.0)
    head.append(torch.randn(num_rows, 4, generator=generator))
    head.open_block(num_new, generator)
    return head


def test_logits_are_scaled_cosines_with_new_rows_and_then_with_earlier_ones() -> None:
    head, contrast = opened_head(3, 2), Contrast(4, "seen")
    contrast.reserve(5)
    contrast.take(head)
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    logits = contrast.logits(head, features)
    rows = torch.cat([head.block.data, head.rows.data])
    expected = 10 * F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
    torch.testing.assert_close(logits[:, :5], expected)
    assert (logits[:, 5:] == -torch.inf).all()
    assert logits.shape == (6, 2 + 5)


def test_places_stay_where_they_are_as_long_as_there_is_room() -> None:
    contrast = Contrast(4, "seen")
    contrast.reserve(4)
    place = contrast.rows.data_ptr()
    contrast.take(opened_head(3, 1))
    contrast.take(opened_head(1, 1))
    assert contrast.rows.data_ptr() == place
    assert contrast.closed.tolist() == [0, *[-torch.inf] * 3]
    contrast.take(opened_head(5, 1))
    assert len(contrast.rows) == 10


def test_the_tasks_own_classes_need_no_room_and_nothing_is_saved() -> None:
    head, contrast = opened_head(3, 2), Contrast(4, "task")
    contrast.reserve(4)
    contrast.take(head)
    features, labels = torch.randn(5, 4), torch.tensor([0, 1, 0, 1, 1])
    assert len(contrast.rows) == 0
    assert torch.equal(contrast.loss(head, features, labels), head.block_loss(features, labels))
    assert not Contrast(4, "seen-trained").state_dict()


@pytest.mark.parametrize(("kind", "keeps"), [("trained", True), ("prototype", False)])
def test_earlier_rows_come_back_as_they_were_trained_where_rows_are_of_training(kind: str, keeps: bool) -> None:
    head = head_of(4, kind=kind)
    head.append(torch.eye(4)[:2])
    for over in ("task", "seen", "seen-trained"):
        contrast = Contrast(4, over)
        contrast.reserve(3)
        contrast.take(head)
        assert len(contrast.groups()) == (over == "seen-trained")
        contrast.rows.data.add_(1)
        contrast.give_back(head)
        is_moved = bool((head.rows.data != torch.eye(4)[:2]).any())
        assert is_moved == (keeps and over == "seen-trained")


@pytest.mark.parametrize("over", ["seen", "seen-trained"])
def test_room_without_a_class_moves_no_gradient(over: Any) -> None:
    head, contrast = opened_head(2, 2), Contrast(4, over)
    contrast.reserve(6)
    contrast.take(head)
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), requires_grad=True)
    contrast.rows.requires_grad_(True)
    contrast.loss(head, features, torch.tensor([0, 1, 1])).mean().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert contrast.rows.grad is not None
    assert contrast.rows.grad[:2].any(1).all()
    assert not contrast.rows.grad[2:].any()


def test_a_factor_that_is_learnt_scales_new_and_earlier_classes_alike() -> None:
    head, contrast = head_of(4, learnt_scale=True), Contrast(4, "seen")
    head.append(torch.eye(4)[:1])
    head.open_block(1, torch.Generator().manual_seed(0))
    head.block.data.copy_(torch.eye(4)[:1])
    head.factor.data.fill_(3)
    contrast.take(head)
    logits = contrast.logits(head, torch.eye(4)[:1])
    torch.testing.assert_close(logits[:, :2], torch.tensor([[3.0, 3.0]]))
