"""Labels of kernels on a screen: the part of a C++ name that tells one kernel from another."""

from __future__ import annotations

import re

from dask_efficiency.show.document import Label
from dask_efficiency.show.figures import harmless, kernel_name, name_of, shorten

#: Kernels that only run what a template argument says: of PyTorch, and cutlass' ``Kernel2``, whose name says nothing.
_RUNNERS = re.compile(
    r"(?:\w*elementwise_kernel\w*|reduce_kernel|multi_tensor_apply_kernel|index_(?:elementwise_)?kernel"
    r"|distribution_elementwise_grid_stride_kernel|Kernel2?|kernel|device_kernel)$"
)
#: Words of template arguments that say nothing of what is computed: types, sizes, containers, and wrappers of functors.
_SAYS_NOTHING = re.compile(
    r"(?:(?:un)?signed|bool|char|short|int|long|u?int\d+_t|float\d?|double|BFloat16|Half|__half|bfloat16_t|half_t|void"
    r"|const|true|false|std|array|Array|tuple|complex|operator|lambda\w*|TensorIterator\w*|\w*TensorListMetadata"
    r"|\w*OffsetCalculator|gpu_kernel_impl\w*|gpu_index_kernel|func_wrapper_t|ReduceOp|[AB]UnaryFunctor|BinaryFunctor"
    r"|(?:Load|Store)With\w*|enable_if_t)$"
)
#: A word, with its own arguments where these are types or sizes alone.
_WORD = re.compile(r"[A-Za-z_]\w*(?:<[\w ,]*>)?")
#: Innermost template arguments.
_INNERMOST = re.compile(r"<[^<>]*>")
#: Characters of a whole name on a page.
_WHOLE_NAME = 250


def kernel_label(name: str) -> Label:
    """Label of a kernel, with its whole name as the hint: ``AddFunctor<float>, vectorized_elementwise_kernel``."""
    return Label(name_of(_telling(kernel_name(name))), hint=shorten(harmless(name[: 4 * _WHOLE_NAME]), _WHOLE_NAME))


def _telling(name: str) -> str:
    function, opens, arguments = name.partition("<")
    if not opens:
        return name
    if not _RUNNERS.match(function):
        return function + opens + _flat(arguments)
    found = (word for word in _WORD.findall(arguments) if not _SAYS_NOTHING.match(word.partition("<")[0]))
    if (functor := next(found, None)) is None:
        return function + opens + _flat(arguments)
    return functor if function.lower().startswith(("kernel", "device_")) else f"{functor}, {function}"


def _flat(arguments: str) -> str:
    """Template arguments without their own."""
    before = ""
    while before != arguments:
        before, arguments = arguments, _INNERMOST.sub("", arguments)
    return arguments
