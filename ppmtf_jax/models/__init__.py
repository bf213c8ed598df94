"""Models as programs of NumPyro, to be read, to check samplers against, and to be used with any inference of NumPyro.

They are in the folder `models` beside the package, as one finds them in the repository, and part of it once installed:
`ppmtf_jax.models.mtf_numpyro` is the hierarchical model behind PPMTF.

Examples
--------
>>> from ppmtf_jax.models.mtf_numpyro import mtf
"""

from pathlib import Path

# A checkout, and an editable installation of one, have the folder beside the package; a wheel has its files here.
_of_checkout = Path(__file__).resolve().parents[2] / "models"
if (_of_checkout / "mtf_numpyro.py").is_file():
    __path__.append(str(_of_checkout))
