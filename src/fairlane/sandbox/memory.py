"""How does a template leave its memory, so that its forks copy few pages of it?

A fork copies a page when it writes to it. Free places lie scattered between what is in use, and whatever a fork makes would be
put there, a page copied for each. So what is free goes back to the kernel, and the places that are left are filled, for ever:
what a fork makes lies together then, in pages that nobody had before, and those need only be cleared.

Laws:
- It is for speed alone: with another allocator than Python's and glibc's too little is filled, or a little too much.
"""

from __future__ import annotations

import ctypes
import os

from .confine import memory_of

# Memory that was freed is used again, small pieces without a look for neighbours to join them with, and comes in large pages
# where the kernel gives them: thousands of page faults less, and PDFium asks for small pieces all the time.
SETTINGS = {"hugetlb": 1, "top_pad": 32 << 20, "mmap_threshold": 1 << 30, "trim_threshold": 1 << 30, "tcache_count": 20_000}
ARENA, POOL, STEP, SMALL_MAX = 1 << 20, 1 << 14, 16, 512  # bytes: how Python cuts memory for objects up to the last of these
TOP = 20 << 20  # bytes that no hole in the heap has
NEAR = 1 << 32  # bytes that a heap is smaller than
FILLED_MAX = 4 << 20  # bytes of one size, whatever allocator there is; it takes less than one of them
_kept: list[object] = []


def settings() -> str:
    """What glibc is to be told when a template starts."""
    return ":".join(f"glibc.malloc.{name}={value}" for name, value in SETTINGS.items())


def leave_in_order() -> None:
    """Before the first fork, when all is loaded."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    _fill_arenas()
    _fill_heap(library)


def _fill_arenas() -> None:
    """Where Python keeps small objects: all pools that are free, and then, of each size, what is free in pools that are not."""
    mapped = memory_of("self")[0]
    for count in range(FILLED_MAX // SMALL_MAX):
        _kept.append(_object(SMALL_MAX))
        if count % 8 == 7 and memory_of("self")[0] - mapped >= ARENA:  # there is a new arena, and this is in its first pool
            break
    first = id(_kept[-1]) & -POOL
    for size in range(STEP, SMALL_MAX + 1, STEP):
        for _ in range(FILLED_MAX // size):
            _kept.append(_object(size))
            if first <= id(_kept[-1]) < first + ARENA:
                break


def _object(size: int) -> object:
    """One of so many bytes, which nobody else has."""
    match size:
        case 16:
            return object()
        case 32:
            return float(os.getpid())
        case _:
            return bytes(size - b"".__sizeof__())


def _fill_heap(library: ctypes.CDLL) -> None:
    """Where everything else is: a piece of every size, until it does not lie between others."""
    library.malloc.restype = ctypes.c_void_p
    beyond = library.malloc(ctypes.c_size_t(TOP)) or 0
    library.free(ctypes.c_void_p(beyond))
    for size in (*(1 << power for power in range(20, 12, -1)), *range(4080, 1040, -256), *range(1032, 23, -16)):
        for _ in range(FILLED_MAX // size):
            place = library.malloc(ctypes.c_size_t(size)) or 0
            if not beyond - NEAR < place < beyond:
                library.free(ctypes.c_void_p(place))
                break
