"""`python -m ppmtf_jax` is the command line `ppmtf`."""

import sys

from ppmtf_jax.cli.app import app

if __name__ == "__main__":
    sys.exit(app(prog_name="ppmtf"))
