"""Threads are limited while a job runs, and as before afterwards."""

import os
import subprocess
import sys

import pytest
import torch
from threadpoolctl import threadpool_info

from graphclean.embed.photos import decoders
from graphclean.errors import InputError
from graphclean.runs.device import limited_threads
from tests.builders import Refuse


def most_threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info())


def test_all_libraries_compute_on_so_many_threads() -> None:
    before = torch.get_num_threads(), most_threads(), decoders()
    with limited_threads(1):
        assert (torch.get_num_threads(), most_threads(), decoders()) == (1, 1, 1)
    with limited_threads(3):
        assert (torch.get_num_threads(), decoders()) == (3, 3)
    with limited_threads(None):
        assert torch.get_num_threads() == before[0]
    assert (torch.get_num_threads(), most_threads(), decoders()) == before


def test_as_before_also_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), limited_threads(before + 1):
        raise KeyError
    assert torch.get_num_threads() == before
    with pytest.raises(InputError, match="threads 0: at least one is needed"), limited_threads(0):
        pass


def test_no_threads_are_refused_on_the_command_line(refuse: Refuse) -> None:
    for command in ("clean x.npz", "train x.npz", "predict run x.npz"):
        refuse(f"{command} --threads 0", "Invalid value for '--threads'")


READ_ONLY = """
import warnings
import numpy as np
import graphclean
from graphclean.data.digits import noisy_digits
from graphclean.errors import DataWarning

warnings.simplefilter("ignore", DataWarning)
digits = noisy_digits(noise=0.3)
images, labels = digits.images[:200], digits.labels[:200]
pixels = digits.pixels[:200].astype(np.float32)
for array in (images, labels, pixels):
    array.setflags(write=False)
graphclean.clean_embeddings(pixels, labels)
for inputs in (pixels, images):
    model = graphclean.NoisyGraphClassifier(epochs=1).fit(inputs, labels)
    model.predict(inputs)
graphclean.clean(pixels, labels, out="run", quiet=True).predict(pixels, quiet=True)
"""


@pytest.mark.slow
def test_read_only_arrays_are_taken_without_a_warning(tmp_path: os.PathLike[str]) -> None:
    """As memory maps and pandas hand them out. In a process of its own, since torch warns once in each."""
    command = [sys.executable, "-W", "error", "-c", READ_ONLY]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
