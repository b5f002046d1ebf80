"""The ids and groups of the queries of a ranking, as the user has them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np


@dataclass(frozen=True, eq=False)
class QueryNames:
    """The id of each query, and its group if there are groups.

    Args:
        ids: the ids, an object with ``tolist``, so that text is decoded only where it is read.
        groups: the distinct groups; None = there are no groups.
        group: int [query], the number of the group of each query; -1 = in none.
    """

    ids: Any
    groups: list[Hashable] | None = None
    group: np.ndarray | None = None

    def group_list(self) -> list[Hashable] | None:
        """The group of each query; None in its place = in none."""
        if self.groups is None or self.group is None:
            return None
        groups = [*self.groups, None]  # -1 is the last one
        return [groups[number] for number in self.group.tolist()]


@dataclass(frozen=True, eq=False)
class Named:
    """A ranking of tables has the ids and groups of its queries; the rankings of its parts do not have them."""

    _names: QueryNames | None = field(default=None, init=False, repr=False)

    def with_names(self, names: QueryNames | None) -> Self:
        """This ranking with ids and groups; for rankings that nobody else has yet."""
        self.__dict__["_names"] = names
        return self

    @property
    def query_ids(self) -> list[Hashable] | None:
        """The id of each query, if the ranking was made of tables; None = it was made of tensors."""
        return None if self._names is None else self._names.ids.tolist()

    @property
    def groups(self) -> list[Hashable] | None:
        """The group of each query, by ``from_table(group=...)``; None in its place = in none; None = no groups."""
        return None if self._names is None else self._names.group_list()
