"""Planted bugs: does a test catch each of `tests/mutants.json`?

    python benchmarks/mutants.py                # all, some 40 minutes on two quiet cores
    python benchmarks/mutants.py people/ noise/ # those in files whose path has one of these texts

Each mutant replaces a text that occurs once in a file of the package, as a tired engineer might, and names the tests
that must fail. It is planted in a copy of the repository. A text that is gone is told as stale: adapt the entry when
you change the line.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def caught(copy: Path, mutant: dict[str, str]) -> str:
    """What becomes of a mutant: "caught", "missed", "stale", or that its tests did not run."""
    file = copy / mutant["file"]
    text = file.read_text(encoding="utf-8")
    if text.count(mutant["old"]) != 1:
        return "stale"
    file.write_text(text.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(mutant["tests"])]
    try:
        status = subprocess.run(command, cwd=copy, env=os.environ | {"PYTHONPATH": str(copy)}, capture_output=True)
    finally:
        file.write_text(text, encoding="utf-8")
    return {0: "missed", 1: "caught"}.get(status.returncode, f"not run: pytest ended with {status.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="texts of which a path has one; all files without them")
    parts = parser.parse_args().parts
    mutants = json.loads((ROOT / "tests" / "mutants.json").read_text(encoding="utf-8"))
    chosen = [each for each in mutants if not parts or any(part in each["file"] for part in parts)]
    n_caught = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / ROOT.name
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "__pycache__", "build"))
        if (ROOT.parent / "shared").exists():  # real data, which some tests use
            (copy.parent / "shared").symlink_to(ROOT.parent / "shared")
        for mutant in chosen:
            found = caught(copy, mutant)
            n_caught += found == "caught"
            print(f"{found}: {mutant['file']}: {mutant['old']!r} -> {mutant['new']!r}", flush=True)
    print(f"{n_caught} of {len(chosen)} are caught")


if __name__ == "__main__":
    main()
