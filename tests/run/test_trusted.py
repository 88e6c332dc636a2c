"""Samples whose labels are known to be right."""

from pathlib import Path

import numpy as np
import torch

from graphclean.data.files import Names
from graphclean.run.trusted import read_trusted
from graphclean.sources import Source


def test_trusted_samples_without_a_label_are_of_no_class(tmp_path: Path) -> None:
    """Also where a class is called None."""
    np.savez(tmp_path / "t.npz", z=np.eye(4), y=np.array(["None", "", "ant", "bee"]))
    source = Source(np.eye(4), ["ant", "None", "ant", "None"])
    found = read_trusted(
        tmp_path / "t.npz",
        source,
        {"kind": "features"},
        Names(),
        labels_of=Path("data"),
        device=torch.device("cpu"),
    )
    assert found.codes.tolist() == [0, 1]
    np.testing.assert_array_equal(found.inputs, np.eye(4)[[0, 2]])
    assert found.notes == ["2 trusted samples are of no class of the data, and are left out"]
