"""Registries: data sets, synthesizers, metrics and attacks, each found by its name.

The module that defines an entry registers it. All modules of a folder are imported at the first look into the folder's
registry, so that adding an entry takes one new file.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Protocol, TypeVar, runtime_checkable

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Settings


@runtime_checkable
class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Mapping[str, Entry]):
    """Entries by name: first those of `first`, then the others in alphabetical order.

    Parameters
    ----------
    what : str
        What an entry is, for messages: "synthesizer".
    package : str
        The package whose modules register entries.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> pets = Registry("pet", "ppmtf_jax.noise", first=["dog"])
    >>> for name in ("cat", "dog", "ant"):
    ...     _ = pets.register(SimpleNamespace(name=name))
    >>> list(pets), pets["cat"].name
    (['dog', 'ant', 'cat'], 'cat')
    """

    def __init__(self, what: str, package: str, first: Sequence[str] = ()):
        self.what, self.package, self.first = what, package, first
        self._entries: dict[str, Entry] = {}
        self._lock = threading.RLock()
        self._discovering = self._discovered = False

    def register(self, entry: Entry) -> Entry:
        """Add an entry.

        Raises `InputError`: the name is taken, or the settings are not a dataclass that inherits from `Settings`.
        """
        kind = getattr(entry, "settings", None)
        if kind is not None and not (issubclass(kind, Settings) and is_dataclass(kind)):
            way_out = "Make it a frozen dataclass that inherits from ppmtf_jax.settings.Settings; an empty one will do"
            raise InputError(
                f"{self.what} {entry.name!r}", [Problem("a class of settings", kind.__name__, way_out=way_out)]
            )
        if entry.name in self._entries:
            way_out = "Choose another name, or remove that one first"
            raise InputError(self.what, [Problem("a name that is free", repr(entry.name), way_out=way_out)])
        self._entries[entry.name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Remove an entry."""
        del self._entries[self[name].name]

    def __getitem__(self, name: str) -> Entry:
        """The entry of that name; an unknown name is an `InputError` that lists the known ones."""
        self._discover()
        if name not in self._entries:
            close = difflib.get_close_matches(str(name), self._entries, n=1)
            way_out = f"Did you mean {close[0]}?" if close else ""
            raise InputError(self.what, [Problem(f"one of {', '.join(self)}", repr(name), way_out=way_out)])
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._discover()
        first = [name for name in self.first if name in self._entries]
        return iter([*first, *sorted({*self._entries} - {*first})])

    def __len__(self) -> int:
        self._discover()
        return len(self._entries)

    def _discover(self) -> None:
        """Import all modules of the package, once; other threads wait until all entries are there."""
        with self._lock:
            if self._discovered or self._discovering:
                return
            self._discovering = True
            try:
                for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
                    before = dict(self._entries)
                    try:
                        importlib.import_module(f"{self.package}.{module.name}")
                    except BaseException:
                        # The next look imports this module again, and fails for the same reason. An entry that stayed
                        # would give another reason: that its name is taken.
                        self._entries = before
                        raise
                self._discovered = True
            finally:
                self._discovering = False
