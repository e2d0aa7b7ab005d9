"""The name of a kernel as a person reads it: without return type, arguments and namespaces."""

from __future__ import annotations

import re

#: A longer name is cut before it is read: templates may nest to hundreds of kilobytes.
MAX_LENGTH = 2000

#: What stands before a name: ``at::native::`` and the like, and lambdas' enclosing scopes.
_NAMESPACES = re.compile(r"(?:\b\w+|\(anonymous namespace\)|<unnamed>)::")
_RETURNS = re.compile(r"^(?:void|static|__global__)\s+")


def kernel_name(name: str) -> str:
    """The name shortened; one that is no C++ is given back as it is.

    Examples
    --------
    >>> kernel_name("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)")
    'vectorized_elementwise_kernel<4, AddFunctor<float>>'
    """
    name = name[:MAX_LENGTH].strip()
    bare = _NAMESPACES.sub("", _RETURNS.sub("", name))
    bare = _without_arguments(bare).replace(" >", ">").replace("> >", ">>").strip()
    return bare or name


def _without_arguments(name: str) -> str:
    """The name up to the parenthesis that opens its arguments: the first one outside of templates."""
    depth = 0
    for place, character in enumerate(name):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth <= 0 and place:
            return name[:place]
    return name
