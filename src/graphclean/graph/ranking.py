"""The k largest similarities of many rows, found tile by tile, and reading each score only once.

Ranking whole rows costs as much as the products do. Here a row is ranked once; from then on only scores
above its k-th best so far are looked at, and most groups of scores are skipped by their maximum.
"""

import torch
from torch import Tensor

SKIPPED = 64
"""Scores that are skipped together."""
FLUSH = 16
"""Waiting scores per row at which they are merged: later thresholds are then higher."""
WIDTH = 64
"""Scores of a row that are merged at once."""


class Ranking:
    """The k best points so far of some rows, and scores that wait to be merged."""

    def __init__(self, rows: int, k: int, like: Tensor) -> None:
        self.k = k
        self.values = torch.full((rows, k), -torch.inf, dtype=like.dtype, device=like.device)
        self.indices = torch.full((rows, k), -1, dtype=torch.int64, device=like.device)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._count = 0

    def offer(self, rows: Tensor, tile: Tensor, first: int) -> None:
        """Consider a contiguous `tile` of scores: its columns are the points from `first`."""
        kth = self.values[rows, -1]
        width = tile.shape[1]
        groups = width // SKIPPED
        if groups:
            grouped = tile[:, : groups * SKIPPED].view(len(tile), groups, SKIPPED)
            row, group = (grouped.amax(2) > kth.unsqueeze(1)).nonzero(as_tuple=True)
            scores = grouped[row, group]
            hit, column = (scores > kth[row].unsqueeze(1)).nonzero(as_tuple=True)
            self._wait(rows[row[hit]], scores[hit, column], group[hit] * SKIPPED + column + first)
        if groups * SKIPPED < width:
            rest = tile[:, groups * SKIPPED :]
            row, column = (rest > kth.unsqueeze(1)).nonzero(as_tuple=True)
            self._wait(rows[row], rest[row, column], column + groups * SKIPPED + first)
        if self._count > FLUSH * len(self.values):
            self.merge()

    def start(self, rows: Tensor, values: Tensor, indices: Tensor) -> None:
        """The first points of rows that have none: at most k, best first."""
        self.values[rows, : values.shape[1]] = values
        self.indices[rows, : values.shape[1]] = indices

    def merge(self) -> None:
        """Merge all waiting scores. Among equal ones, those that were offered first win, of one tile those
        with lower indices.
        """
        if not self._count:
            return
        rows, values, indices = (torch.cat(part) for part in zip(*self._waiting, strict=True))
        self._waiting, self._count = [], 0
        rows, order = rows.sort(stable=True)
        values, indices = values[order], indices[order]
        touched, counts = torch.unique_consecutive(rows, return_counts=True)
        before = (counts.cumsum(0) - counts).repeat_interleave(counts)
        place = torch.arange(len(rows), device=rows.device) - before
        at = torch.arange(len(touched), device=rows.device).repeat_interleave(counts)
        for start in range(0, int(counts.max()), WIDTH):
            part = (place >= start) & (place < start + WIDTH)
            some = counts > start
            number = some.cumsum(0) - 1
            wide = min(WIDTH, int(counts.max()) - start)
            fresh = values.new_full((int(some.sum()), wide), -torch.inf)
            names = indices.new_full(fresh.shape, -1)
            where = number[at[part]], place[part] - start
            fresh[where], names[where] = values[part], indices[part]
            mine = touched[some]
            fresh = torch.cat([self.values[mine], fresh], 1)
            names = torch.cat([self.indices[mine], names], 1)
            fresh, best = fresh.sort(dim=1, descending=True, stable=True)
            self.values[mine] = fresh[:, : self.k]
            self.indices[mine] = names.gather(1, best[:, : self.k])

    def _wait(self, rows: Tensor, values: Tensor, indices: Tensor) -> None:
        if len(rows):
            self._waiting.append((rows, values, indices))
            self._count += len(rows)
