"""The report, the review and predictions on very many samples."""

from common import describe, load, seconds
from graphclean.bench.markdown import markdown_table


def pages_section() -> str:
    """Seconds, size and memory of the pages and of predictions."""
    result = load("pages")
    if result is None:
        return "Not recorded yet.\n"
    rows = []
    for run in result["runs"]:
        report, opened, review = run["report"], run["open"], run["review"]
        rows.append(
            [
                f"{run['classes']:,}",
                f"{seconds(report['seconds'])} ({seconds(report['cpu_seconds'])})",
                f"{report['gib']:.1f} GiB",
                f"{report['mb']:.1f} MB",
                seconds(opened["shown"]),
                seconds(review["requests"]["accept"]),
                f"{seconds(run['apply']['seconds'])} ({seconds(run['apply']['cpu_seconds'])})",
            ]
        )
    predicted = [
        [
            f"`{one['data']}`, {one['mb_in']:,.0f} MB",
            f"`{one['out']}`",
            f"{seconds(one['seconds'])} ({seconds(one['cpu_seconds'])})",
            f"{one['gib']:.2f} GiB",
        ]
        for one in result["predictions"]
    ]
    head = ["classes", "`report`", "memory", "page", "page opens", "a decision is saved", "`apply`"]
    pages = f"{markdown_table(head, rows)}\n" if rows else "Pages: not recorded yet.\n"
    about = (
        f"\n`predict` of {result['rows']:,} × {result['columns']} embeddings by the nearest of "
        f"{result['trained_on']:,} training samples:\n\n"
        f"{markdown_table(['new data', 'written', 'time', 'memory'], predicted)}\n"
        if predicted
        else "\n`predict`: not recorded yet.\n"
    )
    return f"""{result["rows"]:,} samples with a text each, synthetic verdicts and no photos. Time is of the clock, in brackets of the processor;
memory is what the process gained at its peak. A page is open when the first rows of its table are there, in Chromium.

{pages}{about}
{describe(result)}
"""
