"""Broken engines at run time: a function's body is replaced by an edited copy of its own source.

    with patched([Edit(Writer.flush, "self._await(last)", "pass")]) as calls:
        ...                             # every caller of Writer.flush runs the edited body
    calls["Writer.flush"]               # how often it ran

The code object is what is exchanged, so everybody who has imported the function by name is met, too. An edit
names the text that it replaces; a source that has changed so that the text is not there exactly once fails
loudly. Names that the new text needs beyond the module's own are handed in as `helpers`.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

_COUNT = "_mutated_ran"
_FLAGS = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Edit:
    """In the body of `target` (a function, a method, a property) the text `old` becomes `new`, whose further
    lines are indented as deep as the line where it stands."""

    target: Any
    old: str
    new: str

    @property
    def function(self) -> FunctionType:
        found = self.target.fget if isinstance(self.target, property) else self.target
        found = inspect.unwrap(found)
        assert isinstance(found, FunctionType), f"{self.target!r} is no function of Python"
        return found


@contextmanager
def patched(edits: Iterable[Edit], helpers: Mapping[str, Any] | None = None) -> Iterator[Counter[str]]:
    """Run the engine with these edits; yields how often each edited function was called, by its name."""
    grouped: dict[FunctionType, list[Edit]] = {}
    for edit in edits:
        grouped.setdefault(edit.function, []).append(edit)
    calls: Counter[str] = Counter()
    extra = {_COUNT: calls.update, **(helpers or {})}
    code = {function: _edited(function, group) for function, group in grouped.items()}
    before = {function: function.__code__ for function in grouped}
    try:
        for function in grouped:
            function.__globals__.update(extra)
            function.__code__ = code[function]
        yield calls
    finally:
        for function in grouped:
            function.__code__ = before[function]
            for name in extra:
                function.__globals__.pop(name, None)


def _edited(function: FunctionType, edits: list[Edit]) -> CodeType:
    """The code of the function's edited source, which first of all counts its call."""
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        found = source.count(edit.old)
        assert found == 1, (
            f"{function.__qualname__} has {edit.old!r} {found} times; the mutant has to be renewed"
        )
        line = source[source.rfind("\n", 0, source.index(edit.old)) + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        source = source.replace(edit.old, edit.new.replace("\n", f"\n{indent}"))
    tree = ast.parse(source)
    (body,) = (node.body for node in tree.body if isinstance(node, ast.FunctionDef))
    count = ast.parse(f"{_COUNT}([{function.__qualname__!r}])").body
    body[_after_docstring(body) : _after_docstring(body)] = count
    module = compile(
        ast.fix_missing_locations(tree), f"<mutant of {function.__qualname__}>", "exec", _FLAGS, True
    )
    return _find(module, function.__name__)


def _after_docstring(body: list[ast.stmt]) -> int:
    first = body[0]
    return int(isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))


def _find(module: CodeType, name: str) -> CodeType:
    return next(found for found in module.co_consts if isinstance(found, CodeType) and found.co_name == name)


@dataclass(frozen=True)
class Mutant:
    """A broken engine. `breaks`: what it does wrong, in words; `patch` switches it on."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    helpers: tuple[Callable[..., Any], ...] = ()

    @contextmanager
    def patch(self) -> Iterator[Counter[str]]:
        with patched(self.edits, {helper.__name__: helper for helper in self.helpers}) as calls:
            yield calls
