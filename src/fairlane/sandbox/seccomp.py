"""The seccomp filter: the system calls that an attempt may make; all others are refused.

Laws:
- Allowed is what Python, the parsers and tesseract need, as far as it reaches nothing but the process itself, its memory and
  the files that the other layers leave to it. A call that a future kernel adds is refused.
- System calls of another architecture, which have other numbers, kill the process.
- Another process starts only if the attempt may have several, and signals are sent only where they cannot reach anybody else.
- No file is opened for writing, made, changed, moved or removed; those that are open already can grow, and no room can be
  reserved in them. No memory is shared without a file: it would be nobody's, and so not counted.
- A refused call fails with an error; programs that do not depend on it go on.
"""

from __future__ import annotations

import errno
import struct
from functools import cache

Numbers = tuple[int | None, int | None]  # on x86_64 and on aarch64; None: there is no such call

ALLOWED: dict[str, Numbers] = {
    # files
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "lseek": (8, 62),
    "open": (2, None),
    "openat": (257, 56),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "stat": (4, None),
    "lstat": (6, None),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "ftruncate": (77, 46),
    "umask": (95, 166),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    # waiting
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "pause": (34, None),
    "alarm": (37, None),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "restart_syscall": (219, 128),
    # memory
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "membarrier": (324, 283),
    "futex": (202, 98),
    # signals of its own
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    # itself
    "getpid": (39, 172),
    "getppid": (110, 173),
    "gettid": (186, 178),
    "getpgrp": (111, None),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getpriority": (140, 141),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "getrusage": (98, 165),
    "times": (100, 153),
    "prctl": (157, 167),
    "arch_prctl": (158, None),
    "set_tid_address": (218, 96),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "exit": (60, 93),
    "exit_group": (231, 94),
    # the machine
    "time": (201, None),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
}
STARTING: dict[str, Numbers] = {"clone": (56, 220), "fork": (57, None), "vfork": (58, None), "execve": (59, 221)}
SIGNALLING: dict[str, Numbers] = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}
NEWER = 424  # from this number on programs have to expect that a kernel does not know a call, and do without it

# Allowed with these values of one argument only: its index, the values, the error for all others.
ONLY_WITH: dict[str, tuple[int, tuple[int, ...], int]] = {
    "fcntl": (1, (0, 1, 2, 3, 4, 1030), errno.EPERM),  # duplicates and flags: no owner of signals, no lease, no size of a pipe
    "ioctl": (1, (0x5421, 0x541B, 0x5450, 0x5451), errno.ENOTTY),  # FIONBIO, FIONREAD, FIONCLEX, FIOCLEX
    "prctl": (0, (15, 16, 39, 0x53564D41), errno.EPERM),  # its name, no_new_privs, names of its memory
    "prlimit64": (0, (0,), errno.EPERM),  # its own limits
}
_NEW_NAMESPACES = tuple(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
_WRITING = tuple(
    (flag, flag) for flag in (0o1, 0o2, 0o100, 0o1000, 0o20000000)
)  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE
_MMAP = ((0x21, 0x21), (0x40000, 0x40000))  # MAP_SHARED with MAP_ANONYMOUS, and MAP_HUGETLB: in no sum of its memory
# Refused if an argument, after a mask, has a value: its index, then masks and values.
NOT_WITH: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "open": (1, _WRITING),
    "openat": (2, _WRITING),
    "mmap": (3, _MMAP),
    "clone": (0, tuple((flag, flag) for flag in _NEW_NAMESPACES)),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LOAD, _EQUAL, _AND, _AT_LEAST, _RETURN = 0x20, 0x15, 0x54, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _return_if(code: int, value: int, action: int) -> list[bytes]:
    return [_instruction(code, value, 0, 1), _instruction(_RETURN, action)]


def _decide(name: str) -> list[bytes]:
    """Return the instructions that allow or refuse a call by one of its arguments, of which they see the lower half."""
    if name in ONLY_WITH:
        argument, values, error = ONLY_WITH[name]
        checks = [check for value in values for check in _return_if(_EQUAL, value, _ALLOW)]
        return [_instruction(_LOAD, _ARGUMENTS + 8 * argument), *checks, _instruction(_RETURN, _FAIL | error)]
    decision: list[bytes] = []
    argument, refused = NOT_WITH.get(name, (0, ()))
    for mask, value in refused:
        decision += [_instruction(_LOAD, _ARGUMENTS + 8 * argument), _instruction(_AND, mask)]
        decision += _return_if(_EQUAL, value, _FAIL | errno.EPERM)
    return [*decision, _instruction(_RETURN, _ALLOW)]


@cache
def program(machine: str, can_signal: bool, can_start: bool) -> bytes:
    """Return the filter for this machine, as BPF instructions; it may let signals be sent, and processes and threads start."""
    column = 0 if machine == "x86_64" else 1
    instructions = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if column == 0:
        instructions += _return_if(_AT_LEAST, _X32, _KILL)
    calls = ALLOWED | (SIGNALLING if can_signal else {}) | (STARTING if can_start else {})
    for name, numbers in calls.items():
        if (number := numbers[column]) is not None:
            decision = _decide(name)
            instructions += [_instruction(_EQUAL, number, 0, len(decision)), *decision]
    instructions += _return_if(_AT_LEAST, NEWER, _FAIL | errno.ENOSYS)
    return b"".join([*instructions, _instruction(_RETURN, _FAIL | errno.EPERM)])
