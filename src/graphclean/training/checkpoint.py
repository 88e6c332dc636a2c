"""Checkpoints: written atomically, without pickle, and refused if they don't match."""

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from .._files import drafting, load_tensors, reason_of, replaced_folder, save_tensors, sweep
from ..distributed.group import Group
from ..errors import InputError

STATE = "state.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the next epoch depends on: tensors by name, and plain values."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write `folder/epoch-NNNNN`, then remove older ones; a crash at any point leaves the previous one
    intact.

    Checkpoints of self-supervised epochs, or within an epoch (with a `step` in `facts`), include that in
    their name. If the name exists, the new one gets a suffix that sorts after it.
    """
    facts = checkpoint.facts
    name = f"epoch-{facts['epoch']:05}"
    if facts["epoch"] == 0 and facts.get("started"):
        name += f"-start-{facts['started']:05}"
    if "step" in facts:
        name += f"-step-{facts['step']:06}"
    while (folder / name).exists():
        name += "-again"
    try:
        with replaced_folder(folder / name) as draft:
            save_tensors(draft / STATE, checkpoint.tensors, facts)
            _sync(draft / STATE)
    except (OSError, SafetensorError) as error:
        message = f"{folder}: the checkpoint can't be written: {reason_of(error)}"
        if any(folder.glob("epoch-*")):
            message += "; the previous one is intact"
        raise InputError(message) from error
    for old in folder.glob("epoch-*"):
        if old.name != name:
            _remove(old)


class CheckpointWriter:
    """Writes checkpoints in the background; errors are raised by the next call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, checkpoint: Checkpoint) -> None:
        """Copy the tensors now and write them in the background, after any earlier checkpoint."""
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in checkpoint.tensors.items()}
        self.wait()
        self._last = self._pool.submit(save_checkpoint, self.folder, replace(checkpoint, tensors=copies))

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


def load_checkpoint(folder: Path, expected: dict[str, Any]) -> Checkpoint | None:
    """The newest checkpoint, or None; refused where its `config` is not `expected`, naming the difference."""
    sweep(folder)  # drafts of killed processes: after the last epoch no other checkpoint would do that
    names = sorted(path for path in folder.glob("epoch-*") if path.is_dir()) if folder.is_dir() else []
    if not names:
        return None
    newest = names[-1]
    try:
        if not (newest / STATE).is_file():  # it may be a pipe, on which a reader would block
            raise ValueError(f"no file {STATE} in it")
        tensors, facts = load_tensors(newest / STATE)
        config = dict(facts["config"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"{newest}: damaged checkpoint: {error}; remove it to start over") from error
    wanted = json.loads(json.dumps(expected))
    differing = [
        f"{key} was {config.get(key)!r}, is {wanted.get(key)!r}"
        for key in {**wanted, **config}
        if config.get(key) != wanted.get(key)
    ]
    if differing:
        how = "; ".join(differing[:3])
        raise InputError(f"{newest}: the checkpoint was made otherwise: {how}; remove it to start over")
    return Checkpoint(tensors, facts)


def load_shared(folder: Path, expected: dict[str, Any], group: Group) -> Checkpoint | None:
    """`load_checkpoint` of the leading process for all: the others need not see its folder.

    Nothing in a checkpoint belongs to one process, so that any number of them can continue from it.
    """
    found = load_checkpoint(folder, expected) if group.leads else None
    facts = group.leader_says(found.facts if found is not None else None)
    if facts is None:
        return None
    tensors = found.tensors if found is not None else None
    return Checkpoint(group.leader_sends(tensors), facts)


def _remove(old: Path) -> None:
    """Hide it first: half a checkpoint whose name sorts after the new one's must never be found."""
    with suppress(OSError), drafting(old) as hidden:
        os.rename(old, hidden / old.name)


def _sync(path: Path) -> None:
    """Ensure that a file is on disk before it is renamed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
