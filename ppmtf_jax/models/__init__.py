"""Models as NumPyro programs: for reading, for testing samplers, and for inference with any NumPyro method.

In the repository, they are in the folder `models` beside the package; in an installed package, they are part of it.
`ppmtf_jax.models.mtf_numpyro` is the hierarchical model of PPMTF.

Examples
--------
>>> from ppmtf_jax.models.mtf_numpyro import mtf
"""

from pathlib import Path

# In a checkout, and in its editable installation, the folder is beside the package; a wheel has the files here.
_of_checkout = Path(__file__).resolve().parents[2] / "models"
if (_of_checkout / "mtf_numpyro.py").is_file():
    __path__.append(str(_of_checkout))
