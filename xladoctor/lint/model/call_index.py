"""The calls of a file, by what they call, what they give and where they stand."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import libcst as cst

    from xladoctor.lint.model.calls import CallSite
    from xladoctor.lint.model.syntax import Function


class CallIndex:
    """Answers in source order, each list made once.

    Args:
        sites: The calls of a file, in source order.
        order: Where each node stands among all.
    """

    def __init__(
        self, sites: Mapping[cst.Call, CallSite], order: Mapping[cst.CSTNode, int]
    ) -> None:
        self.all = tuple(sites.values())
        self._order = order

    def named(self, *names: str) -> Iterator[CallSite]:
        """Those of dotted names (``"torch.cuda.*"``: a prefix)."""
        exact = {name for name in names if not name.endswith(".*")}
        prefixes = tuple(name[:-1] for name in names if name.endswith(".*"))
        if prefixes:
            exact |= {name for name in self._by_name if name.startswith(prefixes)}
        return self._in_order(self._by_name, exact)

    def methods(self, *names: str) -> Iterator[CallSite]:
        """Those of ``x.name(...)`` for any of the names, whatever ``x`` is (also a module)."""
        return self._in_order(self._by_method, set(names))

    def giving(self, keyword: str) -> Sequence[CallSite]:
        """Those with an argument of that name."""
        return self._by_keyword.get(keyword, ())

    def of(self, function: Function | None) -> Sequence[CallSite]:
        """Those right in a function (None: in no function)."""
        return self._by_function.get(function, ())

    @functools.cached_property
    def _by_name(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self.all:
            if site.name is not None:
                found.setdefault(site.name, []).append(site)
        return found

    @functools.cached_property
    def _by_method(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self.all:
            if site.method is not None:
                found.setdefault(site.method, []).append(site)
        return found

    @functools.cached_property
    def _by_keyword(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for site in self.all:
            for argument in site.node.args:
                if argument.keyword is not None:
                    found.setdefault(argument.keyword.value, []).append(site)
        return found

    @functools.cached_property
    def _by_function(self) -> dict[Function | None, list[CallSite]]:
        found: dict[Function | None, list[CallSite]] = {}
        for site in self.all:
            found.setdefault(site.function, []).append(site)
        return found

    def _in_order(
        self, index: Mapping[str, Sequence[CallSite]], wanted: set[str]
    ) -> Iterator[CallSite]:
        lists = [index[name] for name in wanted if name in index]
        if len(lists) == 1:
            return iter(lists[0])
        sites = (site for found in lists for site in found)
        return iter(sorted(sites, key=lambda site: self._order[site.node]))
