"""Libraries that only some conversions need, and that not everybody has."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from ppmtf_jax.errors import InputError, Problem


def load_library(name: str) -> Any:
    """Import a library of the extra `interop`.

    Raises
    ------
    InputError
        It is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of it that need more, which are not used here
            return importlib.import_module(name)
    except ImportError as error:
        way_out = "Install it with: pip install 'ppmtf_jax[interop]'"
        raise InputError(name, [Problem("the library to be installed", str(error), way_out=way_out)]) from error
