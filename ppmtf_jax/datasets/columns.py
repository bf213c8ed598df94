"""Find the role of each column in a table of check-ins by common column names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from ppmtf_jax.errors import Message, Problem, Setting, quoted, quoted_names

NEEDED_COLUMNS = ("user", "time", "latitude", "longitude")
OPTIONAL_COLUMNS = ("place", "category", "trace", "date", "duration")
END_COLUMNS = ("end_time", "end_latitude", "end_longitude", "end_place")


def plain(name: object) -> str:
    """A lower-case name without accents, blanks or punctuation."""
    letters = unicodedata.normalize("NFKD", str(name).casefold())
    return re.sub(r"[\W_]", "", "".join(letter for letter in letters if not unicodedata.combining(letter)))


# In English, German, French, Spanish, Italian, Portuguese and Japanese; the first that a table has is taken.
COMMON_NAMES = {
    role: [plain(name) for name in names.split()]
    for role, names in {
        "user": "user userid uid usr username person personid individual individualid agent agentid device deviceid "
        "who mmsi imei imsi msisdn subscriber subscriberid taxiid vehicleid benutzer benutzerid nutzer nutzerid "
        "utilisateur utilisateurid idutilisateur usager usuario usuarioid idusuario utente utenteid idutente "
        "utilizador ユーザー ユーザーid ユーザ ユーザid 利用者 利用者id",
        "time": "time timestamp datetime utctime utctimestamp utcdatetime timeutc localtime localdatetime "
        "checkintime checkinat createdat when epoch unixtime starttime startedat startdatetime pickuptime "
        "pickupdatetime gpstime tpeppickupdatetime departuretime zeit zeitpunkt zeitstempel uhrzeit datumzeit "
        "startzeit heure horodatage dateheure heuredebut hora fechahora horainicio marcadetiempo ora orario dataora "
        "orainizio datahora horario 時刻 日時 時間 タイムスタンプ",
        "latitude": "latitude lat y ycoord venuelatitude venuelat poilatitude poilat startlatitude startlat "
        "pickuplatitude startstationlatitude originlatitude originlat breitengrad geobreite breite latitud "
        "latitudine 緯度",
        "longitude": "longitude lon lng long x xcoord venuelongitude venuelon venuelng poilongitude poilon "
        "startlongitude startlon startlng pickuplongitude startstationlongitude originlongitude originlon "
        "längengrad laengengrad geolänge länge laenge longitud longitudine 経度",
        "place": "place placeid venueid poiid locationid spotid venue poi location spot station stationid tower "
        "towerid antenna antennaid bts btsid cell cellid startstationid startstation pulocationid ort ortid ortsid "
        "standort lieu lieuid idlieu lugar lugarid idlugar luogo luogoid idluogo local 場所 地点 施設",
        "category": "category venuecategory venuecategoryname poicategory poicat categoryname catname kategorie "
        "catégorie categoría カテゴリ カテゴリー",
        "trace": "trace traceid trajectory trajectoryid trajid trip tripid fahrt fahrtid trajet trajetid viaje "
        "viajeid viaggio viagem viagemid",
        "date": "date day localdate utcdate datum tag jour fecha día giorno data dia 日付 年月日",
        "weight": "weight weights gewicht poids peso 重み",
        "end_time": "endtime endedat enddatetime dropofftime dropoffdatetime tpepdropoffdatetime stoptime "
        "arrivaltime finishedat departuretime departedat leavetime leftat checkouttime endzeit heurefin horafin "
        "orafine",
        "end_latitude": "endlatitude endlat dropofflatitude endstationlatitude destinationlatitude destlat",
        "end_longitude": "endlongitude endlon endlng dropofflongitude endstationlongitude destinationlongitude destlon",
        "end_place": "endplace endstationid endstation dolocationid",
    }.items()
}
# The unit of a duration in its name, in seconds.
UNITS_S = {
    name: seconds
    for names, seconds in (("s sec secs second seconds", 1), ("m min mins minute minutes", 60), ("h hour hours", 3600))
    for name in names.split()
}
NO_UNIT = ("duration", "dwelltime", "dwell", "staytime", "stayduration", "visitduration")
COMMON_NAMES["duration"] = [what + unit for what in (*NO_UNIT, "stay", "visit") for unit in UNITS_S]
# The beginning and the end of a visit, where a row has one position.
VISIT_TIMES = (
    ("arrivaltime", "departuretime"), ("arrival", "departure"), ("arrivedat", "departedat"), ("arrivedat", "leftat"),
    ("startedat", "finishedat"), ("startedat", "endedat"), ("starttime", "endtime"), ("starttime", "stoptime"),
    ("startdatetime", "enddatetime"), ("start", "end"), ("start", "stop"), ("begin", "end"), ("begintime", "endtime"),
    ("checkin", "checkout"), ("checkintime", "checkouttime"), ("entrytime", "exittime"), ("entry", "exit"),
    ("entertime", "leavetime"), ("timein", "timeout"), ("beginn", "ende"), ("startzeit", "endzeit"), ("von", "bis"),
    ("ankunft", "abfahrt"), ("heuredebut", "heurefin"), ("debut", "fin"), ("inicio", "fin"), ("inizio", "fine"),
)  # fmt: skip
# If several columns can have one of these roles, the user must choose: they may show the times of different clocks.
CHOSEN_BY_ITS_OWNER = ("time", "end_time")


def choose_columns(
    names: Sequence[object], columns: Mapping[str, str | int], find: Sequence[str] = ()
) -> tuple[dict[str, int], list[str], list[Problem]]:
    """Find columns by the names that the caller gives, whose case and punctuation may differ, or by common names.

    Of the columns in `find`, the needed ones must be there, and the optional ones may be absent. Gives the position of
    each column, notes on columns that were found by a common name, and problems.
    """
    simple = [plain(name) for name in names]
    position, missing = {}, []
    notes: dict[str, str] = {}
    problems: list[Problem] = []
    for role, name in columns.items():
        same = [k for k, other in enumerate(names) if other == name]
        same = same or [k for k, other in enumerate(simple) if other == plain(name)]
        if len(same) > 1:
            problems.append(Problem(f"one column {name!r}", f"{len(same)} columns of that name"))
        elif same:
            position[role] = same[0]
        else:
            missing.append(str(name))
    if "time" in find and "end_time" in find:
        begin, end = _visit_times(names, simple)
        if begin >= 0:
            position |= {"time": begin, "end_time": end}
            taken = f"columns {names[begin]!r} and {names[end]!r} are taken for time and end_time"
            notes["time"] = taken
    for role in [role for role in find if role not in position]:
        common = COMMON_NAMES[role]
        # Free columns that can have this role, the most probable first.
        free = [k for k in range(len(names)) if k not in position.values() and simple[k] in common]
        rank = {k: (names[k] != role, common.index(simple[k])) for k in free}
        ranked = sorted(free, key=rank.__getitem__)
        is_exact = bool(ranked) and names[ranked[0]] == role
        same = [k for k in ranked if simple[k] == simple[ranked[0]]]
        rivals = ranked if role in CHOSEN_BY_ITS_OWNER and not is_exact else same
        if len(rivals) > 1:
            way_out = Message("Tell which it is, such as ", Setting("columns", {role: str(names[rivals[0]])}))
            several = ", ".join(quoted(str(names[k])) for k in rivals)
            problems.append(Problem(f"one column that can be the {role}", several, way_out=way_out))
        elif ranked:
            position[role] = ranked[0]
            others = ", ".join(repr(names[k]) for k in ranked[1:])
            if not is_exact or others:
                taken = f"column {names[ranked[0]]!r} is taken for {role}"
                notes[role] = taken + (f"; not taken, but possible: {others}" if others else "")
        elif role in NEEDED_COLUMNS:
            missing.append(role)
    if "time" in missing and "date" in position:
        missing.remove("time")
        position["time"] = position.pop("date")
        notes.pop("date", None)
        notes["time"] = f"column {names[position['time']]!r} is taken for time"
    without_unit = [name for name, plain_name in zip(names, simple, strict=True) if plain_name in NO_UNIT]
    if "duration" in find and without_unit and "duration" not in position and "end_time" not in position:
        way_out = "its name does not say the unit; call it duration_s, duration_min or duration_h if rows are visits"
        notes["duration"] = f"column {without_unit[0]!r} is not used: {way_out}"
    if missing:
        problems.append(_missing(names, [*columns, *find], columns, missing))
    return position, list(notes.values()), problems


def _visit_times(names: Sequence[object], simple: Sequence[str]) -> tuple[int, int]:
    """Where the beginning and the end of visits are; -1 where rows are not visits."""
    of_trips = {name for role in ("end_latitude", "end_longitude", "end_place") for name in COMMON_NAMES[role]}
    if not of_trips.isdisjoint(simple) or not {"time", "timestamp"}.isdisjoint(map(str, names)):
        return -1, -1
    pairs = [(simple.index(begin), simple.index(end)) for begin, end in VISIT_TIMES if {begin, end} <= set(simple)]
    return pairs[0] if pairs else (-1, -1)


# What is not read: what is then missing, a name that tells the form, and what to do.
ROWS_OF_POINTS = "write a row with user, time, latitude and longitude for each"
TWO_COLUMNS = "Write the positions as two columns, latitude and longitude"
OTHER_FORMS = (
    ("user", "xml.*|gpx.*|kml.*", f"This is XML, such as GPX or KML: {ROWS_OF_POINTS}"),
    ("user", ".*type(location|transition|waypoint).*", f"These are records of OwnTracks: {ROWS_OF_POINTS}"),
    ("user", "features", "This is GeoJSON: read it with geopandas.read_file, and give its table to `read_checkins`"),
    ("user", "semanticsegments|timelineobjects|locations", f"This is a timeline of one person: {ROWS_OF_POINTS}"),
    ("user", "dynaid|geoid", "These are files of LibCity: add the coordinates of the .geo file to the .dyna file"),
    ("latitude", "latitudee7|late7", "Write degrees: divide the numbers by 10,000,000"),
    ("latitude", "geom|geometry|thegeom|wkt|point|latlon|latlng|lonlat|coordinates|coords|location", TWO_COLUMNS),
    ("latitude", "polyline|linestring|path", f"Lines are not read: {ROWS_OF_POINTS} of their points"),
    ("latitude", "geohash.*|h3.*|s2.*|quadkey", f"{TWO_COLUMNS}, of the middle of each cell, and take cells as places"),
    ("time", "year", "Write date and time in one column, such as 2012-04-03T18:00:00"),
)


def _missing(
    names: Sequence[object], roles: Sequence[str], columns: Mapping[str, str | int], missing: Sequence[str]
) -> Problem:
    texts = [str(name) for name in names]
    header = f"columns {quoted_names(names)}" if texts else "no columns"
    simple = [plain(text) for text in texts]
    forms = [(form, advice) for role, form, advice in OTHER_FORMS if role in missing]
    known = [advice for form, advice in forms if any(re.fullmatch(form, name) for name in simple)]
    if missing == ["user"]:
        known = ["Without a column that says whose each row is, nobody's traces can be made of it"]
    tell = ". ".join([f"Missing: {', '.join(missing)}", *known[:1], "Tell which column is which, such as "])
    way_out = Message(tell, Setting("columns", {"user": "uid"}))
    if any(re.fullmatch(r"[+-]?\d+([.,]\d*)?", text) for text in texts):
        by_position = "; where the file has no header line, by position from 0, such as "
        way_out = Message(way_out, by_position, Setting("columns", {"user": 0}))
    needed = [str(columns.get(role, role)) for role in roles if role not in (*OPTIONAL_COLUMNS, *END_COLUMNS)]
    return Problem(f"columns {', '.join(dict.fromkeys(needed))}", header, way_out=way_out, code="missing-columns")
