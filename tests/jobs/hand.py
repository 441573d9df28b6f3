#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start ranks with the launch contract, as if on several nodes, and nothing
that watches them: what one leaves the others must find out themselves.

    hand.py NODES TP PP DP CP EP PROGRAM [ARGS]
"""
import os
import socket
import subprocess
import sys

nodes, tp, pp, dp, cp, ep = map(int, sys.argv[1:7])
world = tp * pp * dp * cp
local = world // nodes
with socket.socket() as s:  # a free port
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
secret = os.urandom(16).hex()
ranks = []
for r in range(world):
    shards = r // tp % (cp * dp)
    contract = {
        "RANK": r, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": local,
        "LOCAL_RANK": r % local, "NODE_RANK": r // local, "NNODES": nodes,
        "ORDER": "tp-cp-ep-dp-pp", "GPU": -1, "SECRET": secret,
        "TP_SIZE": tp, "PP_SIZE": pp, "DP_SIZE": dp, "CP_SIZE": cp,
        "EP_SIZE": ep, "TP_RANK": r % tp, "CP_RANK": r // tp % cp,
        "EP_RANK": shards % ep, "DP_RANK": r // tp // cp % dp,
        "PP_RANK": r // tp // cp // dp}
    env = {"PLAIT_" + k: str(v) for k, v in contract.items()}
    env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
               RANK=str(r), WORLD_SIZE=str(world), LOCAL_RANK=str(r % local))
    ranks.append(subprocess.Popen(sys.argv[7:], env={**os.environ, **env}))
worst = [rank.wait() for rank in ranks]
sys.exit(next((s if s > 0 else 128 - s for s in worst if s), 0))
