"""L1,q norms of groups of places, (16) of Murakami et al. (TIFS 2017), and the least squares with such a penalty."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

NEWTON_STEPS = 12
"""Newton steps for the norm of a group whose places have different curvatures; they converge quadratically."""
HALVINGS = 30
"""Steps of a bisection; single precision has 24 bits."""


def norms_of_groups(
    values: Float[Array, "place *more"], group: Int[Array, " place"], q: float | Array
) -> Float[Array, "group *more"]:
    """The Lq norm, q > 1 or infinite, of non-negative values of each group; there may be as many groups as places."""
    greatest = jnp.maximum(0, jax.ops.segment_max(values, group, len(values)))
    scaled = (values / jnp.where(greatest > 0, greatest, 1)[group]) ** q
    return greatest * jax.ops.segment_sum(scaled, group, len(values)) ** (1 / q)


def group_minimizer(
    gradient: Float[Array, " place"],
    curvature: Float[Array, " place"],
    group_norm: float | Array,
    group: Int[Array, " place"],
    q: float | Array | None = None,
    n_steps: int = NEWTON_STEPS,
) -> Float[Array, " place"]:
    """The v >= 0 that minimizes, in each group, sum c_i v_i^2 - 2 g_i v_i + beta ||v||_q; None is 2.

    gradient (g) and curvature (c >= 0) have an entry for each place; g is at most 0 where c is 0. Newton's method needs
    no steps if all curvatures of a group are equal.

    Notes
    -----
    Let q be 2, g+ = max(g, 0) and b = beta / 2. The slope at v = 0 in a direction d >= 0, ||d|| = 1, is 2 (b - g.d);
    its least value is 2 (b - ||g+||). So v = 0 if ||g+|| <= b. Otherwise v_i is 0 where g_i <= 0, and elsewhere
    c_i v_i - g_i + b v_i / t = 0 with t = ||v||. Then v_i = t g_i / (c_i t + b), where t solves f(t) = 1 with

        f(t) = sum (g_i / (c_i t + b))^2.

    The problem is convex, so the one solution of these conditions is the minimum; it is what the Fenchel dual gives.

    f falls from (||g+|| / b)^2 > 1 to 0, so t is unique. h = 1 / sqrt(f) rises, and it is concave: h'' has the sign of
    3 f'^2 - 2 f f'', which Cauchy-Schwarz makes not positive, since with q_i = c_i t + b and p_i = g_i / q_i
    f' = -2 sum c_i p_i^2 / q_i and f'' = 6 sum c_i^2 p_i^2 / q_i^2. So Newton's method for h(t) = 1 rises to the
    solution from any t below it, such as 0 or max(0, ||g+/c|| - b / min c), the solution if all c_i are equal.

    With any q and 1 / q + 1 / p = 1, v = 0 if ||g+||_p <= b. Otherwise v_i = t x_i with t = ||v||_q and
    c_i t x_i + b x_i^(q - 1) = g_i, which rises in x_i. As t rises all x_i fall, so sum x_i^q = 1 has one solution, of
    at most ||g+ / c||_q. If q is infinite, x_i is at most 1, and the sum of (g_i - c_i t x_i) / b is 1.
    """
    half = group_norm / 2
    of_group = partial(jax.ops.segment_sum, segment_ids=group, num_segments=len(group))
    # The square of a tiny partner underflows to 0, but its product with the counts does not.
    gain = jnp.where(curvature > jnp.sqrt(jnp.finfo(curvature.dtype).tiny), jnp.maximum(gradient, 0), 0)
    if q is None:
        gain = jnp.where(of_group(gain**2)[group] > half**2, gain, 0)
    else:
        gain = jnp.where(of_group((gain / half) ** (1 / (1 - 1 / q)))[group] > 1, gain, 0)
    alone = jnp.where(gain > 0, gain / jnp.where(gain > 0, curvature, 1), 0)
    if q is not None:
        return _bisected(gain, alone, curvature, half, group, q)
    least = jax.ops.segment_min(jnp.where(gain > 0, curvature, jnp.inf), group, len(group))
    start = jnp.maximum(0, jnp.sqrt(of_group(alone**2)) - half / least)

    def newton(_: int | Array, norm: Array) -> Array:
        slope = curvature * norm[group] + half
        squares = (gain / slope) ** 2
        total, change = of_group(squares), of_group(curvature * squares / slope)
        step = total * (jnp.sqrt(total) - 1) / jnp.where(change > 0, change, 1)
        return jnp.maximum(0, norm + step)

    norm = jax.lax.fori_loop(0, n_steps, newton, start)[group]
    return norm * gain / (curvature * norm + half)


def _bisected(gain: Array, alone: Array, curvature: Array, half: Array, group: Array, q: float | Array) -> Array:
    """The minimum for any q, by bisections of t and of x."""

    def halved(is_low: Callable[[Array], Array], high: Array) -> Array:
        def halve(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = (ends[0] + ends[1]) / 2
            low = is_low(middle)
            return jnp.where(low, middle, ends[0]), jnp.where(low, ends[1], middle)

        return jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(high), high))[1]

    def share(norm: Array) -> Array:
        most = jnp.minimum(alone / jnp.where(norm > 0, norm, 1), (gain / half) ** (1 / (q - 1)))
        return halved(lambda x: curvature * norm * x + half * x ** (q - 1) < gain, most)

    def is_low(norm: Array) -> Array:
        x = share(norm[group])
        of_place = jnp.where(jnp.isinf(q), (gain - curvature * norm[group] * x) / half, x**q)
        return jax.ops.segment_sum(of_place, group, len(group)) > 1

    norm = halved(is_low, norms_of_groups(alone, group, q))[group]
    return norm * share(norm)
