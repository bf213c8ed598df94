"""Pages of the site that are made when it is built: of files outside docs/, of the commands, and of the modules."""

from __future__ import annotations

import base64
import html
import inspect
import json
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import ppmtf_jax
from ppmtf_jax.cli.app import app
from ppmtf_jax.cli.listing import markdown_tables

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that are pages too. Links between them, and to and from docs/, are written as in the
# repository, so that they can be followed there as well.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
# In the order of the README, from the first to read to the last.
NOTEBOOKS = [
    ROOT / name for name in re.findall(r"\]\((notebooks/\w+\.ipynb)\)", (ROOT / "README.md").read_text("utf-8"))
]
PAGES |= {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
# Files that the site has as they are.
COPIED = ("CITATION.cff", "LICENSE", "notebooks/*.ipynb", "examples/*.toml", "examples/*.sh")
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Put the notebooks and the modules into the navigation."""
    notebooks = next(entry for entry in config.nav if "Notebooks" in entry)
    notebooks["Notebooks"] = [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]
    section = next(entry for entry in config.nav if "Python reference" in entry)
    section["Python reference"] = [{"Overview": "reference/index.md"}, *(f"reference/{name}.md" for name in _modules())]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    made = {"commands.md": commands_page(), "lists.md": lists_page(), "reference/index.md": names_page()}
    made |= {f"reference/{name}.md": f"# {title}\n\n::: {title}\n" for name, title in _modules().items()}
    for path in NOTEBOOKS:
        made[PAGES[f"notebooks/{path.name}"]], pictures = notebook_page(path)
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    for source, page in PAGES.items():
        if page not in made:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for path in sorted(path for pattern in COPIED for path in ROOT.glob(pattern)):
        files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where a file of the repository is in the site."""
    sources = {made: source for source, made in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda link: in_site(link[1], source, page.file.src_uri), markdown)


def in_site(link: str, source: str, page: str) -> str:
    """Where a link of a file of the repository leads to from its page of the site."""
    target = os.path.normpath(os.path.join(os.path.dirname(source), link))
    target = PAGES.get(target, target.removeprefix("docs/"))
    return os.path.relpath(target, os.path.dirname(page) or ".")


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook with what it shows, without its first cell of code, which installs; and its pictures by name."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts, pictures = [], {}
    for number, cell in enumerate(cells):
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown":
            parts.append("\n".join(line for line in lines if "colab" not in line.lower()))
            continue
        if "SOURCE" in "".join(lines[:5]):
            about = "[The notebook](NAME) runs on your machine, and in Colab: upload it there."
            parts.append(about.replace("NAME", path.name))
            continue
        parts.append("\n".join(["```python", *(line for line in lines if not line.startswith("%")), "```"]))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell above draws]({name})")
            elif "text/html" in data:
                shown = re.sub(r"<style.*?</style>|\n\s*\n", "\n", "".join(data["text/html"]), flags=re.DOTALL)
                parts.append(f'<div class="output">\n{shown.strip()}\n</div>')
            else:
                shown = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f'<div class="output">\n<pre>{html.escape(shown.rstrip())}</pre>\n</div>')
    return "\n\n".join(parts) + "\n", pictures


def commands_page() -> str:
    """Every command with its arguments and options, as `--help` tells them."""
    group = typer.main.get_command(app)
    return "\n\n".join(_sections(group, typer.Context(group, info_name="ppmtf"), 1)) + "\n"


def _sections(command: Any, context: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {context.command_path}" if level > 1 else "# Commands"
    yield inspect.cleandoc(command.help)
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```"
    told = [param.get_help_record(context) for param in command.get_params(context)]
    yield "\n\n".join(f"`{name}`\n:   {meaning}" for name, meaning in filter(None, told) if name != "--help")
    if command.epilog:
        yield command.epilog
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        inner = command.get_command(context, name)
        yield from _sections(inner, typer.Context(inner, info_name=name, parent=context), level + 1)


def lists_page() -> str:
    """Everything that is registered, as `ppmtf list` shows it."""
    about = "`ppmtf list` shows these tables. [CONTRIBUTING.md](../CONTRIBUTING.md) says how to add an entry."
    return f"# What there is\n\n{about}\n\n{markdown_tables()}\n"


def names_page() -> str:
    """What `ppmtf_jax` itself exports, and its modules, each with a sentence."""
    names = [(name, getattr(ppmtf_jax, name)) for name in ppmtf_jax.__all__]
    exported = [(f"[{name}][{each.__module__}.{each.__qualname__}]", each) for name, each in names]
    modules = [
        (f"[{title}]({name}.md)", pkgutil.resolve_name(title)) for name, title in _modules().items() if name != "models"
    ]
    return "\n\n".join(
        [
            "# Python reference",
            inspect.getdoc(ppmtf_jax).rpartition("\n\n")[0],  # the end is for those who add a name
            "## From ppmtf_jax",
            _table("Name", exported),
            "## Modules",
            _table("Module", modules),
            "[models](models.md): the hierarchical model as a NumPyro program, to read and to check the sampler by.\n",
        ]
    )


def _table(heading: str, rows: list[tuple[str, Any]]) -> str:
    lines = [(heading, "What it is"), ("---", "---"), *((link, _first_line(each)) for link, each in rows)]
    return "\n".join(f"| {link} | {meaning} |" for link, meaning in lines)


def _first_line(thing: Any) -> str:
    """The first sentence of its docstring; of a package without one, its modules."""
    docstring = inspect.getdoc(thing)
    if docstring is None:
        return ", ".join(module.name for module in pkgutil.iter_modules(thing.__path__))
    return docstring.split("\n")[0]


def _modules() -> dict[str, str]:
    """Names of the pages of modules, and of the modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(ppmtf_jax.__path__))
    names = [name for name in names if name not in ("__main__", "cli")]  # the commands have a page of their own
    return {name: f"ppmtf_jax.{name}" for name in names} | {"models": "mtf_numpyro"}
