"""A teacher follows its student as the formula says, and no gradient moves it."""

import pytest
import torch

from graphclean.methods.blocks.teacher import copy_as_teacher, ramp_up, update_teacher
from graphclean.training.networks import build_network


def test_it_is_the_weighted_sum_of_the_students_weights() -> None:
    student = build_network("small-conv", 3, input_shape=(1, 8, 8))
    teacher = copy_as_teacher(student)
    assert not any(weights.requires_grad for weights in teacher.parameters())
    assert all(weights.requires_grad for weights in student.parameters())
    expected = [weights.detach().double() for weights in student.parameters()]
    buffers = {name: value.clone() for name, value in teacher.named_buffers()}
    for decay in (0.9, 0.5, 0.0, 1.0):
        with torch.no_grad():
            for weights in student.parameters():
                weights.add_(torch.randn_like(weights))
        update_teacher(teacher, student, decay)
        expected = [
            decay * old + (1 - decay) * new.detach().double()
            for old, new in zip(expected, student.parameters(), strict=True)
        ]
        for found, value in zip(teacher.parameters(), expected, strict=True):
            torch.testing.assert_close(found.double(), value, atol=1e-5, rtol=0)
    for name, value in teacher.named_buffers():
        assert torch.equal(value, buffers[name]), "its batch statistics are its own"


def test_the_ramp_is_exponential() -> None:
    assert ramp_up(0) == pytest.approx(0.006738, rel=1e-3)
    assert ramp_up(0.5) == pytest.approx(0.2865, rel=1e-3)
    assert ramp_up(1) == ramp_up(3) == 1
