#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# To be run by mpirun: sets the launch contract as if the ranks were on several
# nodes.
# usage: mpirun.sh RANKS nodes.sh NODES TP PP DP CP EP PROGRAM [ARGS]
r=$OMPI_COMM_WORLD_RANK world=$OMPI_COMM_WORLD_SIZE
PLAIT_NNODES=$1
PLAIT_TP_SIZE=$2 PLAIT_PP_SIZE=$3 PLAIT_DP_SIZE=$4 PLAIT_CP_SIZE=$5
PLAIT_EP_SIZE=$6
shift 6
PLAIT_RANK=$r PLAIT_WORLD_SIZE=$world PLAIT_ORDER=tp-cp-ep-dp-pp
PLAIT_LOCAL_WORLD_SIZE=$((world / PLAIT_NNODES))
PLAIT_LOCAL_RANK=$((r % PLAIT_LOCAL_WORLD_SIZE))
PLAIT_NODE_RANK=$((r / PLAIT_LOCAL_WORLD_SIZE))
PLAIT_TP_RANK=$((r % PLAIT_TP_SIZE))
r=$((r / PLAIT_TP_SIZE))
PLAIT_CP_RANK=$((r % PLAIT_CP_SIZE))
PLAIT_EP_RANK=$((r % (PLAIT_CP_SIZE * PLAIT_DP_SIZE) % PLAIT_EP_SIZE))
r=$((r / PLAIT_CP_SIZE))
PLAIT_DP_RANK=$((r % PLAIT_DP_SIZE))
PLAIT_PP_RANK=$((r / PLAIT_DP_SIZE))
PLAIT_GPU=-1
for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK NNODES \
	ORDER GPU; do
	export "PLAIT_$name"
done
for axis in TP PP DP CP EP; do
	export "PLAIT_${axis}_SIZE" "PLAIT_${axis}_RANK"
done
exec "$@"
