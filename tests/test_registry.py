"""Registries whose modules are imported at the first look."""

from __future__ import annotations

import importlib
import sys
import threading
from types import SimpleNamespace

import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.registry import Registry


@pytest.fixture
def animals(tmp_path, monkeypatch) -> Registry:
    """Of a package with a cat, a dog and an owl, each in a module of its own."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for name in ("cat", "dog", "owl"):
        (folder / f"{name}.py").write_text(f"import zoo\nzoo.add({name!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    import zoo

    registry = Registry("animal", "zoo")
    zoo.add = lambda name: registry.register(SimpleNamespace(name=name))
    yield registry
    for module in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        del sys.modules[module]


def test_modules_are_imported_at_the_first_look(animals):
    assert not [name for name in sys.modules if name.startswith("zoo.")]
    assert list(animals) == ["cat", "dog", "owl"]


def test_a_name_that_was_taken_is_told_at_every_look(animals):
    """Modules that come after the one that failed would be missing without a word."""
    animals.register(SimpleNamespace(name="dog"))
    for _ in range(2):
        with pytest.raises(InputError, match=r"a name that is free; found 'dog'\. Choose another name"):
            list(animals)


def test_a_module_that_failed_tells_why_at_every_look(animals, tmp_path):
    """Its entry must not stay: the second look would say that the name is taken."""
    (tmp_path / "zoo" / "dog.py").write_text("import zoo\nzoo.add('dog')\nimport kennel\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="kennel"):
            list(animals)
    (tmp_path / "zoo" / "dog.py").write_text("import zoo\nzoo.add('terrier')\n")
    importlib.invalidate_caches()
    assert list(animals) == ["cat", "owl", "terrier"]


def test_another_thread_waits_until_all_entries_are_there(animals, tmp_path):
    import zoo

    found = []
    other = threading.Thread(target=lambda: found.append(list(animals)))
    zoo.look = lambda: (other.start(), other.join(timeout=0.2))
    (tmp_path / "zoo" / "cat.py").write_text("import zoo\nzoo.add('cat')\nzoo.look()\n")
    assert list(animals) == ["cat", "dog", "owl"]
    other.join()
    assert found == [["cat", "dog", "owl"]]


def test_an_entry_of_ones_own_stands_beside_the_others(animals):
    animals.register(SimpleNamespace(name="bat"))
    assert list(animals) == ["bat", "cat", "dog", "owl"]
    animals.remove("bat")
    with pytest.raises(InputError, match=r"one of cat, dog, owl; found 'bat'. Did you mean cat\?"):
        animals["bat"]
