"""A host of its own with systemd: this one's file system under an overlay that is thrown away, in namespaces of its own.

What is installed here is installed there; what is done there is not done here.  No network but loopback, no user of Cloche's,
nothing of Cloche's state.  Needs root, systemd and overlayfs.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from harness import IMAGES, MARK, read_text, until

USERS = ("cloche-audit", "cloche-reader", "cloche-redis", "cloche-worker", "cloche")
TEMPLATES = "/srv/templates"
DEVICES = "null zero full random urandom tty kvm"
BEGIN = """set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir srv/templates
mount --bind "$3" srv/templates
mount -t tmpfs -o mode=755 tmpfs dev
for name in $2; do
    [ -e "/dev/$name" ] || continue
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${n%:*}" "dev/${n#*:}"; done
ip link set lo up
rm -rf var/lib/cloche etc/cloche etc/default/cloche var/lib/redis
mkdir -m 755 var/lib/cloche
mount --bind "$1/state" var/lib/cloche # overlayfs of Linux 6.1 gives no name to a file that was made without one
install -d -o redis -g redis -m 750 var/lib/redis
mkdir -p etc/systemd/system
printf '[Unit]\\nRequires=basic.target\\nAfter=basic.target\\nAllowIsolate=yes\\n' > etc/systemd/system/bare.target
export container=lxc
pivot_root . mnt
umount -l mnt
exec /lib/systemd/systemd --unit=bare.target --log-target=journal
"""


class SystemdHost:
    """`with SystemdHost() as host`: up when it is entered, gone with all its processes when it is left."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cloche-host."))
        self.child, self.init = None, 0

    def __enter__(self):
        for name in ("upper", "work", "root", "state"):
            (self.dir / name).mkdir()
        log = open(self.dir / "console", "wb")  # noqa: SIM115
        self.child = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--cgroup", "--net", "--ipc", "--uts", "--kill-child",
                                       "sh", "-c", BEGIN, "sh", str(self.dir), DEVICES, str(IMAGES)],
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": os.environ["PATH"], MARK: self.dir.name})
        log.close()
        if not until(lambda: self.child.poll() is not None or self._is_up(), 60):
            self.leave()
            raise RuntimeError("systemd did not come up")
        if self.child.poll() is not None:
            raise RuntimeError(f"systemd ended with {self.child.returncode}: {read_text(self.dir / 'console')[-2000:]}")
        for user in USERS:
            self.run("userdel", user)
        return self

    def _is_up(self):
        children = read_text(f"/proc/{self.child.pid}/task/{self.child.pid}/children").split()
        self.init = int(children[0]) if children else 0
        return self.init and read_text(f"/proc/{self.init}/comm") == "systemd\n" and self.run("systemctl", "is-active", "bare.target").returncode == 0

    def run(self, *argv, seconds=300, **env):
        """A command there, as root: CompletedProcess with text."""
        words = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--cgroup", "--net", "--ipc", "--uts", "--root", "--wd", *argv]
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_PAGER": "", **env}
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, env=clean)

    def path(self, name):
        """Of a file there, as it is seen from here."""
        return pathlib.Path(f"/proc/{self.init}/root") / str(name).lstrip("/")

    def show(self, unit, *names):
        """{property: value} of a unit."""
        text = self.run("systemctl", "show", unit, "--property", ",".join(names)).stdout
        return dict(line.split("=", 1) for line in text.splitlines())

    def state(self, unit):
        return self.run("systemctl", "is-active", unit).stdout.strip()

    def processes(self, name):
        """pids there, as this host has them, of those whose program's name begins so."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") == space and os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(name):
                    found.append(int(pid))
            except OSError:
                continue  # it has ended
        return found

    def leave(self):
        if self.child and self.child.poll() is None:
            if self.init:
                os.kill(self.init, signal.SIGKILL)
            else:
                self.child.kill()
            self.child.wait()

    def __exit__(self, *_):
        self.leave()
        for _ in range(50):  # the last of its processes give the overlay back
            shutil.rmtree(self.dir, ignore_errors=True)
            if not self.dir.exists():
                return
            time.sleep(0.1)
