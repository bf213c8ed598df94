r"""The hierarchical model behind PPMTF as a NumPyro program: its readable definition.

Murakami et al. 2021, section 3.3, with the names of this package. Two count tensors are products of factors that they
share; every factor has rows from one Gaussian, whose mean and precision have a normal-Wishart prior::

                          mu_0, beta_0, W_0, nu_0
            .---------------.-------'-------.---------------.
            v               v               v               v
        Psi_user        Psi_place     Psi_next_place    Psi_slot        Psi = (mean, precision)
            v               v               v               v
      user [users]   place [places]  next_place [places]  slot [slots]  plate: one row for each
            |               |               |               |
            |               |               v               |
            |---------------|-------> transitions [cells]   |           plate: the observed cells
            |               |               ^               |
            |               |        noise_precision        |
            |               |               v               |
            '---------------'------->  visits [cells] <-----'

For each factor z (user, place, next_place, slot) with rows x_1, x_2, ..., and each observed cell (n, i, j)::

    Lambda_z   ~ Wishart(W_0, nu_0)                     eq. (4); W_0 is the scale matrix: E[Lambda] = nu_0 W_0
    mu_z       ~ Normal(mu_0, (beta_0 Lambda_z)^-1)     eq. (4)
    x_k        ~ Normal(mu_z, Lambda_z^-1)
    r_nij      ~ Normal(sum_k user_nk place_ik other_jk, 1 / noise_precision) ^ weight_nij          eqs. (2), (3)

The Gibbs sampler of the package does not need this module. It is there to be read, to check the sampler against, and to
be used with any inference of NumPyro. `models.inference` runs it by SVI and by NUTS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings
from ppmtf_jax.gibbs.tensors import ZERO_STAGES, CountTensors, sample_zeros, zero_weights


class Cells(NamedTuple):
    """The observed cells of one tensor, one after another.

    Attributes
    ----------
    index : int array, shape (cells, 3)
        User, place, and next place or slot of each cell.
    value : float array, shape (cells,), or None
        The count of each cell; None leaves them unobserved, so that `Predictive` draws them.
    weight : positive float array, shape (cells,), or None
        Power to which each cell's likelihood is raised. With `zero_weight`, so many cells are listed like this one,
        and are no zeros. None is 1 everywhere.
    zero_weight : float array, shape (users,), or None
        Weight with which every cell that is not listed is observed as a zero, for each user; None observes no others.
    """

    index: np.ndarray | jax.Array
    value: np.ndarray | jax.Array | None = None
    weight: np.ndarray | jax.Array | None = None
    zero_weight: np.ndarray | jax.Array | None = None


def mtf(
    cells: dict[str, Cells],
    n_rows: dict[str, int],
    coupling: Coupling = SHARED,
    settings: GibbsSettings = GibbsSettings(),
) -> None:
    """Multiple tensor factorization, the model that the Gibbs sampler draws from.

    `cells`: the observed cells of each tensor of the coupling (see `list_cells`). `n_rows`: the rows of each factor.
    `coupling`: `gibbs.kernel.SHARED` for PPMTF, `synthesizers.systems.itf.UNSHARED` for ITF (App. E). `settings`: rank,
    noise precision and hyper-prior. Sample sites of each factor, such as `user`: `user_precision_root`, the lower
    Cholesky factor of the precision (rank, rank); `user_mean` (rank,); and `user` (users, rank). Of each tensor: its
    counts (cells,).

    Examples
    --------
    Three users at two places, drawn from the prior:

    >>> from numpyro.infer import Predictive
    >>> n_rows = {"user": 3, "place": 2, "next_place": 2, "slot": 1}
    >>> every_cell = {name: Cells(np.argwhere(np.ones((3, 2, n)))) for name, n in (("transitions", 2), ("visits", 1))}
    >>> settings = GibbsSettings(rank=2, noise_precision=4.0)
    >>> prior = Predictive(mtf, num_samples=100)(jax.random.key(0), every_cell, n_rows, SHARED, settings)
    >>> prior["user"].shape, prior["transitions"].shape, prior["visits"].shape
    ((100, 3, 2), (100, 12), (100, 6))

    Their posterior by NUTS, and by variational inference: `models.inference`.
    """
    factors = {name: _factor(name, n_rows[name], settings) for name in coupling.factors}
    for tensor, modes in coupling.tensors:
        index, value, weight, zero_weight = cells[tensor]
        expected = expected_cells(factors, modes, index)
        noise = dist.Normal(expected, settings.noise_precision**-0.5)
        weight = 1.0 if weight is None else weight
        if len(index):  # NumPyro has no empty plates
            with numpyro.plate(f"{tensor}_cells", len(index)), numpyro.handlers.scale(scale=weight):
                numpyro.sample(tensor, noise, obs=value)
        if zero_weight is not None:
            every = zero_weight @ log_density_of_zeros(factors, modes, settings.noise_precision)
            numpyro.factor(f"{tensor}_zeros", every - (weight * zero_weight[index[:, 0]] * noise.log_prob(0.0)).sum())


def expected_cells(
    factors: Mapping[str, np.ndarray | jax.Array], modes: tuple[str, str, str], index: np.ndarray | jax.Array
) -> np.ndarray | jax.Array:
    """Expected counts of the cells `index`, eq. (2): from factors (..., rows, rank) to counts (..., cells)."""
    first, second, third = (factors[name][..., index[:, mode], :] for mode, name in enumerate(modes))
    return (first * second * third).sum(axis=-1)


def log_density_of_zeros(
    factors: Mapping[str, jax.Array], modes: tuple[str, str, str], noise_precision: float
) -> jax.Array:
    """Log density of each user's cells, all of them as zeros, shape (users,); no cell is listed.

    The sum over places i and others j of (sum_k u_k p_ik o_jk)^2 is u^T (P^T P * O^T O) u, with * entry by entry.
    """
    user, place, other = (factors[name] for name in modes)
    gram = (place.T @ place) * (other.T @ other)
    n_cells = len(place) * len(other)
    return 0.5 * (n_cells * jnp.log(noise_precision / (2 * jnp.pi)) - noise_precision * ((user @ gram) * user).sum(-1))


def list_cells(
    counts: CountTensors,
    zeros: Literal["sampled", "weighted"],
    n_zeros: int,
    *,
    seed: int,
    hidden: dict[str, np.ndarray] | None = None,
) -> dict[str, Cells]:
    """The cells that the sampler sees after `gibbs.cells.observe` with the same arguments, as plain lists.

    Positive cells come first. With weighted zeros only these are listed, and the others have their `zero_weight`.
    """
    cells = {}
    for name, tensor in counts._asdict().items():
        index, value = tensor.cell_index, tensor.count.astype(np.float32)
        if zeros == "weighted":
            cells[name] = Cells(index, value, None, zero_weights(tensor, n_zeros).astype(np.float32))
            continue
        unseen = sample_zeros(tensor, n_zeros, seed=seed, stage=ZERO_STAGES[name], hidden=(hidden or {}).get(name))
        cells[name] = Cells(np.concatenate([index, unseen]), np.pad(value, (0, len(unseen))))
    return cells


class NormalWithPrecisionRoot(dist.Distribution):
    """Multivariate normal with precision `precision_root @ precision_root.T`, the root lower triangular.

    Its density needs neither a factorization nor a solve. (`MultivariateNormal(precision_matrix=...)` factorizes the
    precision anew, which fails in single precision where its condition is bad, as it can be at rank 16.)
    """

    arg_constraints: ClassVar = {"loc": constraints.real_vector, "precision_root": constraints.lower_cholesky}
    support = constraints.real_vector  # type: ignore[assignment]
    reparametrized_params: ClassVar = ["loc", "precision_root"]

    def __init__(self, loc: jax.Array, precision_root: jax.Array, *, validate_args: bool | None = None) -> None:
        self.loc, self.precision_root = loc, precision_root
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=validate_args)

    def log_prob(self, value: np.ndarray | jax.Array) -> jax.Array:
        """Log density at vectors, shape (..., rank) to (...)."""
        standardized = (value - self.loc) @ self.precision_root
        log_root_determinant = jnp.log(jnp.diagonal(self.precision_root)).sum()
        return log_root_determinant + dist.Normal().log_prob(standardized).sum(axis=-1)

    def sample(self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws, shape sample_shape + (..., rank)."""
        noise = jax.random.normal(key, sample_shape + self.batch_shape + self.event_shape, self.precision_root.dtype)
        columns = noise.reshape(-1, noise.shape[-1]).T
        deviation = jax.scipy.linalg.solve_triangular(self.precision_root, columns, trans=1, lower=True)
        return self.loc + deviation.T.reshape(noise.shape)


def _factor(name: str, n_rows: int, settings: GibbsSettings) -> jax.Array:
    """A factor and its mean and precision, eq. (4). The root is what is sampled: NUTS can move it freely."""
    hyper, rank = settings.hyper, settings.rank
    degrees = rank if hyper.degrees_of_freedom is None else hyper.degrees_of_freedom
    prior_mean, scale_root = jnp.full(rank, hyper.mean), hyper.scale**0.5 * jnp.eye(rank)
    root = numpyro.sample(f"{name}_precision_root", dist.WishartCholesky(degrees, scale_tril=scale_root))
    mean = numpyro.sample(f"{name}_mean", NormalWithPrecisionRoot(prior_mean, hyper.mean_strength**0.5 * root))
    with numpyro.plate(f"{name}_rows", n_rows):
        return jnp.asarray(numpyro.sample(name, NormalWithPrecisionRoot(mean, root)))
