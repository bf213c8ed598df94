"""Registries whose modules are imported at the first look."""

from __future__ import annotations

import sys
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


def test_an_entry_of_ones_own_stands_beside_the_others(animals):
    animals.register(SimpleNamespace(name="bat"))
    assert list(animals) == ["bat", "cat", "dog", "owl"]
    animals.remove("bat")
    with pytest.raises(InputError, match=r"one of cat, dog, owl; found 'bat'. Did you mean cat\?"):
        animals["bat"]
