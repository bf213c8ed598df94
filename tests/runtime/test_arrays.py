"""Tests of `runtime.arrays`."""

from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.files import read_arrays


def test_array_that_is_marked_as_encrypted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, user=np.zeros(3))
    content = bytearray(path.read_bytes())
    # The flags of the member, in its own header and in the archive's table.
    content[6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"as NumPy stores them, .*'user'"):
        read_arrays(path, ["user"])
