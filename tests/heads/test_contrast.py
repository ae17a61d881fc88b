"""Rows of earlier classes stand beside the task's own in a place of fixed shape."""

import torch
import torch.nn.functional as F

from clare.heads.contrast import Contrast
from clare.heads.head import Head, HeadSettings


def opened_head(num_rows: int, num_new: int) -> Head:
    """Return a head with finished rows and an open block."""
    generator = torch.Generator().manual_seed(0)
    head = Head(4, HeadSettings(scale=10.0))
    head.append(torch.randn(num_rows, 4, generator=generator))
    head.open_block(num_new, generator)
    return head


def test_logits_are_scaled_cosines_with_new_rows_and_then_with_earlier_ones() -> None:
    head, contrast = opened_head(3, 2), Contrast(4)
    contrast.reserve(5)
    contrast.place(head.rows.data)
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    logits = contrast.logits(head, features)
    rows = torch.cat([head.block.data, head.rows.data])
    expected = 10 * F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T
    torch.testing.assert_close(logits[:, :5], expected)
    assert (logits[:, 5:] == -torch.inf).all()
    assert logits.shape == (6, 2 + 5)


def test_places_stay_where_they_are_as_long_as_there_is_room() -> None:
    contrast = Contrast(2)
    contrast.reserve(4)
    place = contrast.rows.data_ptr()
    contrast.place(torch.ones(3, 2))
    contrast.place(torch.ones(1, 2))
    assert contrast.rows.data_ptr() == place
    assert contrast.closed.tolist() == [0, *[-torch.inf] * 3]
    contrast.place(torch.ones(5, 2))
    assert len(contrast.rows) == 10


def test_room_without_a_class_moves_no_gradient() -> None:
    head, contrast = opened_head(2, 2), Contrast(4)
    contrast.reserve(6)
    contrast.place(head.rows.data)
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), requires_grad=True)
    F.cross_entropy(contrast.logits(head, features), torch.tensor([0, 1, 1])).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_a_factor_that_is_learnt_scales_new_and_earlier_classes_alike() -> None:
    head, contrast = Head(4, HeadSettings(learnt_scale=True)), Contrast(4)
    head.append(torch.eye(4)[:1])
    head.open_block(1, torch.Generator().manual_seed(0))
    head.block.data.copy_(torch.eye(4)[:1])
    head.factor.data.fill_(3)
    contrast.place(head.rows.data)
    logits = contrast.logits(head, torch.eye(4)[:1])
    torch.testing.assert_close(logits[:, :2], torch.tensor([[3.0, 3.0]]))
