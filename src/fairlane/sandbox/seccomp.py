"""The seccomp filter: the system calls that an attempt may make.

It lists what is forbidden, since Python and the libraries of parsers together use most of the rest.

Laws:
- System calls of another architecture, which have other numbers, kill the process.
- Forbidden are sockets, other processes' memory and signals, namespaces, mounts, modules, keys, and memory beyond all limits.
- So is what Landlock does not restrict: modes, owners, times, attributes, truncation by name.
- A forbidden call fails with an error; programs that do not depend on it go on.
"""

from __future__ import annotations

import errno
import struct
from functools import cache

# Name: number on x86_64, number on aarch64 (None: there is no such call).
FORBIDDEN: dict[str, tuple[int, int | None]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "acct": (163, 89),
    "personality": (135, 92),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "mknod": (133, None),
    "mknodat": (259, 33),
}
# Their flags are in memory, which a filter cannot read: they fail as not implemented, and programs use the older calls.
NOT_IMPLEMENTED: dict[str, tuple[int, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
SIGNALS: dict[str, tuple[int, int | None]] = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
_READ_ONLY_TRUNCATE, _ACCESS_AND_TRUNCATE = 0o1000, 0o1003
_SET_PDEATHSIG = 1
_LOAD, _EQUAL, _AND, _AT_LEAST, _RETURN = 0x20, 0x15, 0x54, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _refuse(number: int, error: int) -> list[bytes]:
    return [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, _FAIL | error)]


def _refuse_if(number: int, argument: int, mask: int, value: int, is_equal: bool = True) -> list[bytes]:
    """Refuse a call if the masked lower half of an argument equals this value, or does not."""
    then, otherwise = (0, 1) if is_equal else (1, 0)
    body = [
        _instruction(_LOAD, _ARGUMENTS + 8 * argument),
        _instruction(_AND, mask),
        _instruction(_EQUAL, value, then, otherwise),
        _instruction(_RETURN, _FAIL | errno.EPERM),
        _instruction(_LOAD, _NUMBER),
    ]
    return [_instruction(_EQUAL, number, 0, len(body)), *body]


@cache
def program(machine: str, are_signals_allowed: bool) -> bytes:
    """Return the filter for this machine, as BPF instructions."""
    column = 0 if machine == "x86_64" else 1
    instructions = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if column == 0:
        instructions += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _KILL)]
    clone, openat, prctl, prlimit = ((56, 257, 157, 302), (220, 56, 167, 261))[column]
    instructions += _refuse_if(clone, 0, _NEW_NAMESPACES, 0, is_equal=False)
    instructions += _refuse_if(openat, 2, _ACCESS_AND_TRUNCATE, _READ_ONLY_TRUNCATE)
    if column == 0:
        instructions += _refuse_if(2, 1, _ACCESS_AND_TRUNCATE, _READ_ONLY_TRUNCATE)  # open
    instructions += _refuse_if(prctl, 0, 0xFFFFFFFF, _SET_PDEATHSIG)
    instructions += _refuse_if(prlimit, 0, 0xFFFFFFFF, 0, is_equal=False)  # limits of other processes
    refused = dict.fromkeys((*FORBIDDEN.values(), *(() if are_signals_allowed else SIGNALS.values())), errno.EPERM)
    refused |= dict.fromkeys(NOT_IMPLEMENTED.values(), errno.ENOSYS)
    for numbers, error in refused.items():
        if (number := numbers[column]) is not None:
            instructions += _refuse(number, error)
    return b"".join([*instructions, _instruction(_RETURN, _ALLOW)])
