"""Run the notebooks, and store what they show unless what is stored already has the same form.

    python docs/notebooks.py [--check] [--workers 2] [notebooks/quickstart.py ...]

A notebook is a script, `notebooks/NAME.py`, which is edited, and `NAME.ipynb`, which has its cells and what they show.
Each script is run. What is stored stays if it has the same form: the same kinds of outputs, and the same words of texts
and tables. Numbers and pictures may differ, since seeds and noise come from the operating system. Where the words
depend on noise too, the cell has the tag `noise`: there, most words must be the same.
With `--check` nothing is written, and what is out of date is an error.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
MAX_PICTURE = 150_000  # bytes
MIN_ALIKE = 0.7  # of the words that a cell with the tag `noise` shows
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA logs each program that it loads from its cache
CPU_SECONDS = "import time; time.process_time()"


def executed(script: Path) -> tuple[Any, float]:
    """The notebook of a script with what its cells show, and the CPU seconds that they took."""
    import jupytext
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell

    notebook = jupytext.read(script)
    cells = notebook.cells
    notebook.cells = [*cells, new_code_cell(CPU_SECONDS)]
    NotebookClient(
        notebook,
        timeout=900,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": script.parent}},
    ).execute()
    seconds = float(notebook.cells[-1].outputs[0].data["text/plain"])
    notebook.cells = cells
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(cells):
        cell.id, cell.metadata = f"cell-{number}", {key: cell.metadata[key] for key in {"tags"} & set(cell.metadata)}
        if cell.cell_type == "code":
            cell.outputs = tidied(cell.outputs)
    return notebook, seconds


def tidied(outputs: list[Any]) -> list[Any]:
    """The outputs of a cell with texts in one piece, and small pictures."""
    found: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and found and found[-1].get("name") == output.name:
            found[-1].text += output.text
            continue
        picture = output.get("data", {}).get("image/png")
        if picture is not None:
            output.data["image/png"] = smaller(picture)
            output.data.pop("text/plain", None)  # where the object is in memory
            output.metadata = {}
        found.append(output)
    return found


def smaller(picture: str) -> str:
    """The same picture in 256 colours."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
    if buffer.tell() > MAX_PICTURE:
        raise ValueError(f"a picture of {buffer.tell():,} bytes; at most {MAX_PICTURE:,} are stored")
    return base64.b64encode(buffer.getvalue()).decode()


def out_of_date(stored: Any, new: Any) -> list[str]:
    """What differs in form between a stored notebook and one that was just run."""
    before, after = ([(cell.cell_type, cell.source, cell.metadata) for cell in each.cells] for each in (stored, new))
    if before != after:
        return ["its cells differ from those of its script"]
    found = []
    for number, (old, cell) in enumerate(zip(stored.cells, new.cells, strict=True)):
        if cell.cell_type == "code":
            before, after = form(old.outputs), form(cell.outputs)
            same = [kind for kind, _ in before] == [kind for kind, _ in after]
            needed = MIN_ALIKE if "noise" in cell.metadata.get("tags", ()) else 1
            if not same or min(map(alike, before, after), default=1) < needed:
                found.append(f"what cell {number} shows")
    return found


def alike(before: tuple[Any, list[str]], after: tuple[Any, list[str]]) -> float:
    """How alike the words of two outputs are, from 0 to 1."""
    return SequenceMatcher(None, before[1], after[1], autojunk=False).ratio()


def form(outputs: list[Any]) -> list[tuple[Any, list[str]]]:
    """Of each output its kind and its words; a word with a digit is a number, or a name that was drawn."""
    found = []
    for output in outputs:
        data = output.get("data", {})
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", data.get("text/html", ""))
        text = " ".join(cells) or output.get("text", data.get("text/plain", ""))
        words = [word for word in re.findall(r"\w+", text) if not re.search(r"\d", word)]
        found.append(((output.output_type, output.get("name"), *sorted(data), bool(cells)), words))
    return found


def main() -> None:
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scripts", nargs="*", type=Path, default=sorted(ROOT.glob("notebooks/*.py")))
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()

    def run(script: Path) -> str | None:
        """Run, compare, store; says what is out of date."""
        begin, file = time.perf_counter(), script.with_suffix(".ipynb")
        new, cpu_seconds = executed(script)
        reasons = out_of_date(nbformat.read(file, as_version=4), new) if file.exists() else ["it was not there"]
        print(f"{script.stem}: {time.perf_counter() - begin:.0f} s, {cpu_seconds:.0f} CPU seconds", flush=True)
        if not reasons:
            return None
        if not given.check:
            nbformat.write(new, file)
        return f"{script.stem}: {', '.join(reasons)}"

    with ThreadPoolExecutor(given.workers) as pool:
        stale = [reason for reason in pool.map(run, given.scripts) if reason]
    for reason in stale:
        print(f"{reason}: {'make notebooks stores it anew' if given.check else 'stored anew'}")
    sys.exit(bool(given.check and stale))


if __name__ == "__main__":
    main()
