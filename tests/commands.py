"""Commands called as a person would, in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from ppmtf_jax.cli.app import app


def call(*words: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)})


def works(*words: object, columns: int = 80) -> str:
    """What is said where all is well."""
    result = call(*words, columns=columns)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: object, columns: int = 80) -> str:
    """What is said where a user is wrong: an error on standard error, never a traceback."""
    result = call(*words, columns=columns)
    assert result.exit_code in (1, 2), result.output
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    return result.stderr
