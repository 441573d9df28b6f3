# SPDX-License-Identifier: Apache-2.0
"""A trainer that is not Plait's: ranks that exchange messages over sockets,
until one of them reads the pipe FILE, to which nothing is written.
usage: stacks.py FILE RANK"""
import os
import socket
import subprocess
import sys
import time

me, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with open("process.%d" % me, "w") as file:
    print(os.getpid(), file=file)


def connect():
    """Return a list with a socket to rank 0; for rank 0, sockets to all
    others."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if me == 0:
        server = socket.create_server(place)
        return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(place)]
        except OSError:
            time.sleep(0.05)


def all_reduce(links):
    if me == 0:
        for link in links:
            link.recv(1)
    for link in links:
        link.send(b"x")
    if me:
        links[0].recv(1)


def load(path):
    with open(path, "rb", buffering=0) as file:
        file.read(1)


def train(links, path, guilty):
    for step in range(20):
        if step == 10 and me == guilty:
            load(path)
        all_reduce(links)
        if step == 9:
            open("here.%d" % me, "w").close()


# The worker inherits its rank's variables, but is not a rank.
worker = subprocess.Popen([sys.executable, "-c", "input()"],
                          stdin=subprocess.PIPE)
train(connect(), sys.argv[1], int(sys.argv[2]))
