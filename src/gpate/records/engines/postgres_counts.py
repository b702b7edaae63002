"""Tables of counts, computed by PostgreSQL: one query for all tables of a pass, or a few, whose result has at most one row for each cell.

Records are encoded (`postgres_encoding`), then coded: cells as `gpate.features.table_cells.ColumnCells.codes` has them. What costs
PostgreSQL most is to find the group of a record, once for each table. So tables that share columns are counted together, as one joint
table of all their columns (`joint_tables`), if it has few cells; the tables are then sums over the joint one, also computed by the server.

A cell has one number: its joint table's columns in a mixed radix. PostgreSQL expects 200 different values of such a number, and so
counts by hashing in memory, whatever the number of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gpate.boundary import Distances, NoisyBlocks, Tables
from gpate.errors import InvalidValue
from gpate.features.number_values import MOST_DECIMALS
from gpate.features.table_cells import DAY, HOUR, ColumnCells
from gpate.records.engines.postgres_encoding import array, literal
from gpate.records.mapped import CodeRows
from gpate.schema import TableSchema

JOINT_CELLS = 1 << 18
"""Of a joint table; of one that is asked for there may be more."""

_AT_ONCE = 64
"""Joint tables of one query."""


class Joint(NamedTuple):
    """A joint table.

    Attributes:
        columns: of codes.
        tables: those that are sums over it, by their places among all tables.
    """

    columns: tuple[int, ...]
    tables: tuple[int, ...]


def counted_tables(mechanism: NoisyBlocks) -> Tables | None:
    """The tables whose counts are the exact sums of a mechanism; None if its sums are others."""
    if mechanism.bound is not None or len(mechanism.blocks) != 1:
        return None
    (block,) = mechanism.blocks
    if isinstance(block, Distances):
        return block.tables
    return block if isinstance(block, Tables) else None


def tally_query(encoded: str, schema: TableSchema) -> str:
    """For each class, and -1 for the records that are left out: the class, the number of its records, in how many of them each column was
    repaired, and two sums of hashes of the records.

    Args:
        encoded: from `postgres_encoding.encoded`.
        schema: public.
    """
    repairs = [f"count(*) FILTER (WHERE r{i})" for i in range(len(schema.columns))]
    hashes = [f'sum(hashtextextended(record COLLATE "C", {seed}))::text' for seed in (1, 2)]
    label = f"CASE WHEN dropped THEN -1 ELSE {_label(schema)} END"
    return f"SELECT {label}, count(*), {', '.join([*repairs, *hashes])} FROM ({encoded}) AS encoded GROUP BY 1"


def count_queries(encoded: str, schema: TableSchema, rows: CodeRows, tables: Tables) -> Iterator[str]:
    """Queries that give (cell, count) for all cells of all tables that are not empty; cells as in `Tables.counts`.

    Args:
        encoded: from `postgres_encoding.encoded`.
        schema: public.
        rows: what is counted.
        tables: in what.
    """
    codes, sizes = code_expressions(schema, rows)
    if len(sizes) != len(tables.sizes) or any(own > size for own, size in zip(sizes, tables.sizes, strict=True)):
        raise InvalidValue("codes", "others", f"below the sizes {tables.sizes}")
    listed = ", ".join(f"({code})::bigint AS c{i}" for i, code in enumerate(codes))
    coded = f"SELECT {listed} FROM ({encoded}) AS encoded WHERE NOT dropped OFFSET 0"
    joints = joint_tables(tables)
    for first in range(0, len(joints), _AT_ONCE):
        yield _joint_query(coded, tables, joints[first : first + _AT_ONCE])


def joint_tables(tables: Tables, most: int = JOINT_CELLS) -> list[Joint]:
    """Joint tables of at most so many cells over which all tables are sums; each table joins the first that has room for its columns.

    >>> joint_tables(Tables(sizes=(2, 4, 4, 4), tables=((0, 1), (0, 2), (1, 2), (2, 3))), most=32)
    [Joint(columns=(0, 1, 2), tables=(0, 1, 2)), Joint(columns=(2, 3), tables=(3,))]
    """
    found: list[Joint] = []
    for place, table in enumerate(tables.tables):
        for i, joint in enumerate(found):
            together = tuple(dict.fromkeys((*joint.columns, *table)))
            if math.prod(tables.sizes[column] for column in together) <= most:
                found[i] = Joint(together, (*joint.tables, place))
                break
        else:
            found.append(Joint(tuple(dict.fromkeys(table)), (place,)))
    return found


def code_expressions(schema: TableSchema, rows: CodeRows) -> tuple[list[str], list[int]]:
    """The codes of a record, and how many values each has."""
    codes, sizes = [], []
    if rows.labels:
        codes.append(_label(schema))
        sizes.append(max(1, len(schema.classes)))
    for j, cells in enumerate(rows.columns):
        value = f"v{schema.columns.index(schema.features[cells.place])}"
        code, size = _cell(cells, value), cells.cells
        if rows.groups is not None:
            groups = rows.groups[j].tolist()
            code, size = f"({array(groups)})[{code} + 1]", max(groups) + 1
        codes.append(code)
        sizes.append(size)
    return codes, sizes


def _label(schema: TableSchema) -> str:
    return "0" if schema.label is None else f"coalesce(v{schema.columns.index(schema.label)}, 0)::int"


def _cell(cells: ColumnCells, value: str) -> str:
    """The cell of a value, as `ColumnCells.codes` has it."""
    last = cells.cells - 1
    if cells.kind == "decimals":
        powers = ((decimals, literal(10.0**decimals)) for decimals in range(1, MOST_DECIMALS))
        needs = [
            f"WHEN {value} = round({value}) THEN 0"
        ]  # all numbers from 2^52 on: the products below stay among the floats
        needs += [f"WHEN {value} = round({value} * {power}) / {power} THEN {decimals}" for decimals, power in powers]
        return f"CASE WHEN {value} IS NULL THEN {last} {' '.join(needs)} ELSE {MOST_DECIMALS} END"
    if cells.kind == "number":
        inner = ",".join(repr(float(edge)) for edge in cells.edges[1:-1])
        code = (
            f"width_bucket({value}, '{{{inner}}}'::float8[])" if inner else f"CASE WHEN {value} IS NOT NULL THEN 0 END"
        )
    elif cells.kind == "weekday":
        code = f"(((floor({value} / {literal(DAY)})::bigint + 3) % 7 + 7) % 7)::int"
    elif cells.kind == "hour":
        code = f"((floor({value} / {literal(HOUR)})::bigint % 24 + 24) % 24)::int"
    else:
        code = f"{value}::int"
    return f"coalesce({code}, {last})" if cells.missing else code


def _joint_query(coded: str, tables: Tables, joints: Sequence[Joint]) -> str:
    """Counts of joint tables, and of them the sums that are asked for."""
    names = [f"k{i}" for i in range(len(joints))]
    numbers = [_number([f"c{column}" for column in joint.columns], joint.columns, tables) for joint in joints]
    keys = ", ".join(f"{number} AS {name}" for name, number in zip(names, numbers, strict=True))
    counted = (
        f"SELECT {', '.join(names)}, count(*) AS n FROM (SELECT {keys} FROM ({coded}) AS coded OFFSET 0) AS keyed "
        f"GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in names)})"
    )
    cells = " ".join(
        f"WHEN {name} IS NOT NULL THEN ARRAY[{', '.join(_cells_in(joint, name, tables))}]"
        for name, joint in zip(names, joints, strict=True)
    )
    return (
        f"WITH joint AS MATERIALIZED ({counted}) SELECT cell, sum(n)::bigint "
        f"FROM joint, LATERAL unnest(CASE {cells} ELSE ARRAY[-1] END) AS cell GROUP BY cell"
    )


def _cells_in(joint: Joint, key: str, tables: Tables) -> Iterator[str]:
    """For each table of a joint one the cell that a cell of the joint one is part of."""
    starts = np.cumsum([0, *(math.prod(shape) for shape in tables.shapes)])
    digits, place = {}, 1
    for column in reversed(joint.columns):
        digits[column] = f"({key} / {place} % {tables.sizes[column]})"
        place *= tables.sizes[column]
    for t in joint.tables:
        own = tables.tables[t]
        yield f"{starts[t]} + {_number([digits[column] for column in own], own, tables)}"


def _number(digits: Sequence[str], columns: Sequence[int], tables: Tables) -> str:
    """The number of a cell, the last column running fastest."""
    found = digits[0]
    for i, (digit, column) in enumerate(zip(digits[1:], columns[1:], strict=True)):
        found = f"{f'({found})' if i else found} * {tables.sizes[column]} + {digit}"
    return found
