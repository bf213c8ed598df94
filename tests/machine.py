"""A machine with as much memory as a test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

READS = Path.read_text


def with_memory_files(patch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Let the system tell of its memory what some of its files say; those that are not given are not there."""

    def read_text(path: Path, *arguments: str, **options: str) -> str:
        if not str(path).startswith(("/proc/", "/sys/fs/")):
            return READS(path, *arguments, **options)
        if str(path) not in files:
            raise FileNotFoundError(str(path))
        return files[str(path)]

    patch.setattr(Path, "read_text", read_text)


def with_gigabytes(patch: pytest.MonkeyPatch, n: float) -> None:
    """Let so many gigabytes be available."""
    with_memory_files(patch, {"/proc/meminfo": f"MemAvailable: {round(n * 1e9 / 1024)} kB\n"})
