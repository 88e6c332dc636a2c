"""`Run`: a run folder as an object."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import pandas as pd

from ..cli.progress import StageProgress
from ..embed import Embedder, EmbeddingFunction, as_embedder
from ..errors import InputError, arg
from ..report import write_report
from ..runs.apply import Applied, apply
from ..runs.cleaned_folder import Placing
from ..runs.device import limited_threads
from ..runs.export import Exported, export
from ..runs.folder import read_config, read_summary, read_verdicts, require_finished
from ..runs.formats import Format
from ..runs.memory import hold_like
from ..runs.predict import join_parts, judge_new, predict
from .names import NameOptions, to_names
from .summary import as_html, as_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Run:
    """A finished run of `clean` or `train`: its results, and methods that use them.

    In a notebook, a run is displayed as its summary.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a run folder written by `clean`, `train` or the command line."""
        self.path = Path(path)
        self.config = read_config(self.path)
        require_finished(self.path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Open a run folder."""
        return cls(path)

    @property
    def kind(self) -> str:
        """The command that made the run: `clean` or `train`."""
        return str(self.config.get("kind"))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """A DataFrame with one row per sample, as in `verdicts.parquet`."""
        return read_verdicts(self.path)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Estimated rates, selected settings and warnings, as in `summary.json`."""
        return dict(read_summary(self.path))

    @property
    def warnings(self) -> list[str]:
        """Warnings about the data and the model."""
        return list(self.summary.get("warnings", []))

    def predict(
        self,
        data: Any,
        labels: Any = None,
        *,
        out: str | Path | None = None,
        evaluate: bool = False,
        embedder: Embedder | EmbeddingFunction | None = None,
        device: str = "auto",
        threads: int | None = None,
        overwrite: bool = False,
        quiet: bool = False,
        **names: Unpack[NameOptions],
    ) -> pd.DataFrame:
        """Predict a class or OOD for new data of the kind that the run was made from.

        `data` is a path, or arrays in memory. Predictions for a path are also written to `out` (.csv or
        .parquet), if given. With `evaluate`, the labels in `data` count as the truth, and `.attrs["scores"]`
        of the returned table holds the scores of the predictions; for data in memory, pass `labels`, one per
        sample. If the run embedded its photos with a function, or with an `Embedder` that is not registered
        under a name, pass it as `embedder`.
        """
        options: dict[str, Any] = {"device": device, "names": to_names(names)}
        options["embedder"] = as_embedder(embedder) if embedder is not None else None
        options["evaluate"] = evaluate or labels is not None
        with limited_threads(threads), StageProgress(quiet=quiet) as progress:
            options["progress"] = progress
            if not isinstance(data, str | Path):
                if out is not None:
                    raise InputError(f"{arg('out')} is for data at a path; save the returned table instead")
                source = hold_like(self.config.get("source", {}), data, labels, run=self.path)
                return judge_new(self.path, source, **options)
            if labels is not None:
                raise InputError(
                    f"{data}: {arg('labels')} are for arrays; {arg('evaluate')} reads those of a path"
                )
            if out is None:
                return judge_new(self.path, Path(data), **options)
            parts: list[pd.DataFrame] = []
            found = predict(
                self.path, Path(data), out=Path(out), overwrite=overwrite, gather=parts, **options
            )
            return join_parts(parts, found)

    def apply(
        self,
        *,
        out: str | Path | None = None,
        form: Placing | Format | None = None,
        data: str | Path | None = None,
        drop_uncertain: bool = False,
        drop_duplicates: bool = False,
        min_confidence: float = 0.0,
        reviewed_only: bool = False,
        dry_run: bool = False,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Applied:
        """Carry out the verdicts, as `graphclean apply` does; the originals are never touched.

        By default, this writes a manifest. `form` selects a cleaned folder instead (`link`, `hardlink` or
        `copy`), or the format of another tool (`label-studio`, `fiftyone`, `cleanlab` or `hf`). Review
        decisions override verdicts. Verdicts with a confidence below `min_confidence` count as uncertain;
        with `reviewed_only`, so do all samples without a decision. `drop_duplicates` keeps one sample of each
        duplicate group.
        """
        with StageProgress(quiet=quiet) as progress:
            return apply(
                self.path,
                out=_path(out),
                form=form,
                data=_path(data),
                drop_uncertain=drop_uncertain,
                drop_duplicates=drop_duplicates,
                min_confidence=min_confidence,
                reviewed_only=reviewed_only,
                dry_run=dry_run,
                overwrite=overwrite,
                progress=progress,
            )

    def report(
        self,
        *,
        out: str | Path | None = None,
        data: str | Path | None = None,
        show: Sequence[str] = (),
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Path:
        """Write the report, a single HTML file that works offline, and return its path.

        `show` names columns of the source's table to show with each sample.
        """
        with StageProgress(quiet=quiet) as progress:
            return write_report(
                self.path,
                out=_path(out),
                data=_path(data),
                show=show,
                overwrite=overwrite,
                progress=progress,
            ).out

    def export(
        self, *, out: str | Path | None = None, overwrite: bool = False, quiet: bool = False
    ) -> Exported:
        """Write the model as an ONNX file (needs the extra `onnx`)."""
        with StageProgress(quiet=quiet) as progress:
            return export(self.path, out=_path(out), overwrite=overwrite, say=progress.say)

    def plot_map(self, axes: "Axes | None" = None) -> "Axes":
        """Plot samples on a two-dimensional map where similar features are close, colored by verdict."""
        from .plots import plot_map

        return plot_map(self.path, axes)

    def plot_confusion(self, axes: "Axes | None" = None) -> "Axes":
        """Plot the number of samples for each pair of given and proposed label."""
        from .plots import plot_confusion

        return plot_confusion(self.path, axes)

    def __repr__(self) -> str:
        return as_text(self.path, self.kind, self.summary, self.verdicts)

    def _repr_html_(self) -> str:
        return as_html(self.path, self.kind, self.summary, self.verdicts)


def _path(given: str | Path | None) -> Path | None:
    return Path(given) if given is not None else None
