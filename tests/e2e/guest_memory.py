"""Run in a guest: which pages of new memory are there when some of them were touched.  A line a question, as JSON: its name, and
how many of EACH answered what (other programs of the guest's may come between two touches of one)."""
import collections
import ctypes
import json
import mmap
import os

MAP_NORESERVE = 0x4000
PAGE, PART, EACH = 4096, 2 << 20, 8
SHARED_WITH_NOBODY = 1 << 56  # of an entry of /proc/self/pagemap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def new_memory(n_bytes):
    """The address of a part that has page tables of its own."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    return libc.mmap(None, n_bytes + PART, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) + PART - 1 & -PART


def write(at, page):
    ctypes.c_ubyte.from_address(at + page * PAGE).value = 1


def there(at):
    """[first, last] of each run of pages that are there."""
    is_there, runs = (ctypes.c_ubyte * 128)(), []
    libc.mincore(at, len(is_there) * PAGE, is_there)
    for page in (n for n, byte in enumerate(is_there) if byte & 1):
        if runs and runs[-1][1] == page - 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    return runs


def question(name, ask):
    answers = collections.Counter(json.dumps(ask(new_memory(PART))) for _ in range(EACH))
    print(json.dumps([name, answers]), flush=True)


def one_by_one(at):
    write(at, 5)
    return there(at)


def goes_on(at):
    steps = []
    for page in (0, 4, 12, 28, 44):
        write(at, page)
        steps += [there(at)]
    return steps


def is_read(at):
    ctypes.c_ubyte.from_address(at + 5 * PAGE).value
    return there(at)


def kernel_writes(at):
    r, w = os.pipe()
    os.write(w, b"x")
    libc.read(r, ctypes.c_void_p(at + 5 * PAGE), ctypes.c_size_t(1))
    os.close(r)
    os.close(w)
    return there(at)


def is_advised(at):
    libc.madvise(at, PART, 15)  # MADV_NOHUGEPAGE
    return one_by_one(at)


def ends_early(at):
    libc.munmap(ctypes.c_void_p(at + 6 * PAGE), ctypes.c_size_t(PART - 6 * PAGE))
    write(at, 5)
    return there(at)


def is_of_a_fork(at):
    """Pages that the child of a fork has with its parent, and one of them anew: the others are not copied for it."""
    for page in range(4):
        write(at, page)
    read, told = os.pipe()
    child = os.fork()
    if child == 0:
        libc.madvise(at, PAGE, 4)  # MADV_DONTNEED
        write(at, 0)
        with open("/proc/self/pagemap", "rb") as f:
            f.seek(at // PAGE * 8)
            entries = f.read(4 * 8)
        own = [n for n in range(4) if int.from_bytes(entries[n * 8:n * 8 + 8], "little") & SHARED_WITH_NOBODY]
        os.write(told, json.dumps(own).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 100))


def here_and_there(at):
    """A byte in each 16 KiB of 256 MiB, more than there are: 64 MiB if each takes a page."""
    n = 16384
    at = new_memory(n * 4 * PAGE)
    for page in range(n):
        write(at, page * 4)
    return sum(ctypes.c_ubyte.from_address(at + page * 4 * PAGE).value for page in range(n))


for name in ("one_by_one", "goes_on", "is_read", "kernel_writes", "is_advised", "ends_early", "is_of_a_fork"):
    question(name, globals()[name])
EACH = 1
question("here_and_there", here_and_there)
