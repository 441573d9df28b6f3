#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun for the tests: it permits more ranks than cores, root, and containers
# that forbid a process to read another's memory.
# usage: mpirun.sh RANKS PROGRAM [ARGS]
ranks=$1
shift
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_hwloc_base_binding_policy=none
OMPI_MCA_pml=ob1
OMPI_MCA_btl=vader,self
OMPI_MCA_btl_vader_single_copy_mechanism=none
OMPI_MCA_plm_rsh_agent=
# Open MPI leaks memory in modules that it has unloaded when leaks are reported,
# so that no suppression can name them. Only tests of a single process look for
# leaks.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
export OMP_NUM_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
export OMPI_MCA_rmaps_base_oversubscribe
export OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_pml OMPI_MCA_btl
export OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_plm_rsh_agent
exec mpirun -n "$ranks" "$@"
