"""What tables of check-ins call their columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ppmtf_jax.errors import Problem

NEEDED_COLUMNS = ("user", "time", "latitude", "longitude")
OPTIONAL_COLUMNS = ("place", "category", "trace", "date")
# In small letters, without marks between words; of several that a table has, the first is taken.
COMMON_NAMES = {
    "user": "user userid uid usr username person personid individual individualid agent agentid device deviceid who",
    "time": "time timestamp datetime utctime utctimestamp utcdatetime timeutc localtime localdatetime checkintime "
    "checkinat createdat when epoch unixtime starttime",
    "latitude": "latitude lat y ycoord venuelatitude venuelat poilatitude poilat",
    "longitude": "longitude lon lng long x xcoord venuelongitude venuelon venuelng poilongitude poilon",
    "place": "place placeid venueid poiid locationid spotid venue poi location spot",
    "category": "category venuecategory venuecategoryname poicategory poicat categoryname catname",
    "trace": "trace traceid trajectory trajectoryid trajid trip tripid",
    "date": "date day localdate utcdate",
}
# Which of two such columns is meant cannot be told: the clock of a time, say.
CHOSEN_BY_ITS_OWNER = ("time",)


class ColumnChoice(NamedTuple):
    """The position of each column in the table, what was found by a common name, and what is wrong.

    Attributes
    ----------
    position : dict of str to int
    found : dict of str to str
        Name in the table of each column that was not named by the caller as it is written there.
    problems : list of Problem
    """

    position: dict[str, int]
    found: dict[str, str]
    problems: list[Problem]


def choose_columns(names: Sequence[object], columns: Mapping[str, str | int], find: Sequence[str] = ()) -> ColumnChoice:
    """Find columns in a table with a header.

    Parameters
    ----------
    names : sequence
        The columns of the table.
    columns : mapping
        Name in the table of each column that the caller names; capitals and marks between words may differ.
    find : sequence of str
        Columns to look for by their common names; optional ones may be absent.

    Examples
    --------
    >>> choose_columns(["UserID", "Lat", "comment"], {"latitude": "lat"}, find=["user", "place"]).position
    {'latitude': 1, 'user': 0}
    """
    plain = [_plain(name) for name in names]
    position, found, problems, missing = {}, {}, [], []
    for role, name in columns.items():
        same = [k for k, other in enumerate(names) if other == name]
        same = same or [k for k, other in enumerate(plain) if other == _plain(name)]
        if len(same) > 1:
            problems.append(Problem(f"one column {name!r}", f"{len(same)} columns of that name"))
        elif same:
            position[role] = same[0]
        else:
            missing.append(str(name))
    for role in find:
        chosen, doubtful = _by_common_name(role, names, plain, taken=position.values())
        problems += doubtful
        if chosen is not None:
            position[role] = chosen
            if names[chosen] != role:
                found[role] = str(names[chosen])
        elif role in NEEDED_COLUMNS and not doubtful:
            missing.append(role)
    if "time" in missing and "date" in position:
        missing.remove("time")
        position["time"] = position.pop("date")
        found["time"] = str(names[position["time"]])
        found.pop("date", None)
    if missing:
        texts = [str(name) for name in names]
        header = f"columns {', '.join(texts)}" if texts else "no columns"
        way_out = f"Missing: {', '.join(missing)}. Tell which column is which, such as columns={{'user': 'uid'}}"
        if any(_is_number(text) for text in texts):
            way_out += "; where the file has no header line, by position from 0, such as columns={'user': 0}"
        needed = [str(columns.get(role, role)) for role in (*columns, *find) if role not in OPTIONAL_COLUMNS]
        problems.append(Problem(f"columns {', '.join(dict.fromkeys(needed))}", header, way_out=way_out))
    return ColumnChoice(position, found, problems)


def _by_common_name(
    role: str, names: Sequence[object], plain: Sequence[str], taken: Collection[int]
) -> tuple[int | None, list[Problem]]:
    free = [k for k in range(len(names)) if k not in taken]
    exact = [k for k in free if names[k] == role]
    common = COMMON_NAMES[role].split()
    ranked = exact or sorted((k for k in free if plain[k] in common), key=lambda k: common.index(plain[k]))
    if not ranked:
        return None, []
    best = [k for k in ranked if plain[k] == plain[ranked[0]]]
    rivals = ranked if role in CHOSEN_BY_ITS_OWNER and not exact else best
    if len(rivals) > 1:
        several = ", ".join(repr(names[k]) for k in rivals)
        way_out = f"Tell which it is, such as columns={{{role!r}: {str(names[rivals[0]])!r}}}"
        return None, [Problem(f"one column that can be the {role}", several, way_out=way_out)]
    return ranked[0], []


def _plain(name: object) -> str:
    return re.sub(r"[\W_]", "", str(name)).casefold()


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
