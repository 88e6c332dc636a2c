"""Convert the notebooks of `examples/` to pages of the site: text and code, without outputs."""

import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def on_files(files: Any, config: Any) -> Any:
    """mkdocs hook: add a page for each notebook, and the notebook itself next to it."""
    from mkdocs.structure.files import File

    for path in sorted(EXAMPLES.glob("*.ipynb")):
        page = File.generated(config, f"tutorials/{path.stem}.md", content=to_markdown(path))
        files.append(page)
        files.append(File.generated(config, f"tutorials/{path.name}", abs_src_path=str(path)))
    return files


def to_markdown(path: Path) -> str:
    """A notebook as Markdown, with a link to itself below its title."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        if number == 0:
            title, _, rest = text.partition("\n")
            parts[0] = f"{title}\n\n[Download this notebook]({path.name}){{ .notebook }}\n{rest}"
    return "\n\n".join(parts) + "\n"
