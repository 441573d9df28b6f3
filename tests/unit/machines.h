/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_UNIT_MACHINES_H
#define PLAIT_TESTS_UNIT_MACHINES_H

#include "made_machine.h"

/* The machines of test_machines.c, and what is right on each. */

/* ---- the made ones ---- */

/* A GPU die of an MI250X belongs to a cache of its own: 0 to the seventh. */
#define MI250X "0380 1002:7408 "
#define DIES                                                          \
    "l6 0000:c1:00.0 " MI250X "rsmi0; l7 0000:c6:00.0 " MI250X        \
    "rsmi1; l2 0000:c9:00.0 " MI250X "rsmi2; l3 0000:ce:00.0 " MI250X \
    "rsmi3; l0 0000:d1:00.0 " MI250X "rsmi4; "                        \
    "l1 0000:d6:00.0 " MI250X "rsmi5; l4 0000:d9:00.0 " MI250X        \
    "rsmi6; l5 0000:de:00.0 " MI250X "rsmi7; "                        \
    "l7 0000:c7:00.0 0200 17db:0501 hsn0; "                           \
    "l3 0000:cf:00.0 0200 17db:0501 hsn1; "                           \
    "l1 0000:d7:00.0 0200 17db:0501 hsn2; "                           \
    "l5 0000:df:00.0 0200 17db:0501 hsn3"
static const struct made_machine mi250x_nps4 = {1, 4, 2, 8, "", DIES};
static const struct made_machine mi250x_nps1 = {1, 1, 8, 8, "", DIES};

/* Two MI300X in four partitions; the driver counts the second device first. */
static const struct made_machine mi300x_parts = {
    2,
    1,
    2,
    4,
    "",
    "n0 0000:05:00.0 1200 1002:74a1 =PlaitPart=4/132/-*PlaitPart=5/133/-*"
    "PlaitPart=6/134/-*PlaitPart=7/135/-; "
    "n1 0000:c5:00.0 1200 1002:74a1 =PlaitPart=0/128/-*PlaitPart=1/129/-*"
    "PlaitPart=2/130/-*PlaitPart=3/131/-; "
    "n0 0000:06:00.0 0207 15b3:1021 mlx5_0; "
    "n1 0000:c6:00.0 0207 15b3:1021 mlx5_1"};
/* Device files in another order than the driver's. */
static const struct made_machine mi210_files = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:05:00.0 0380 1002:740f =PlaitPart=1/128/GPU-00aa00aa00aa00aa; "
    "n1 0000:c5:00.0 0380 1002:740f =PlaitPart=0/129/GPU-00bb00bb00bb00bb"};
static const struct made_machine mi210_unknown = {
    2, 1,  1,
    4, "", "n0 0000:05:00.0 0380 1002:740f; n1 0000:c5:00.0 0380 1002:740f"};

static const struct made_machine two_pvc = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:18:00.0 0380 8086:0bd5; n1 0000:68:00.0 0380 8086:0bd5; "
    "n0 0000:19:00.0 0200 17db:0501 hsn0; n1 0000:69:00.0 0200 17db:0501 hsn1"};
/* HBM beside the DRAM; one tile a card, listed twice by Level Zero */
static const struct made_machine pvc_hbm = {
    2,
    1,
    1,
    4,
    "hbm",
    "n0 0000:18:00.0 0380 8086:0bda ze0 ze1; n1 0000:68:00.0 0380 8086:0bda "
    "ze2*LevelZeroSubdevices=2"};

#define MIG(a, b)                             \
    "=PlaitPart=-1/-1/MIG-" a "1111111-2222*" \
    "PlaitPart=-1/-1/MIG-" b "1111111-2222"
static const struct made_machine mig = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:17:00.0 0302 10de:2330 " MIG(
        "a", "b") "; "
                  "n1 0000:97:00.0 0302 10de:2330 " MIG(
                      "c", "d") "; "
                                "n0 0000:18:00.0 0207 15b3:1021 mlx5_0; "
                                "n1 0000:98:00.0 0207 15b3:1021 mlx5_1"};
static const struct made_machine h100 = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:17:00.0 0302 10de:2330 nvml0*NVIDIAUUID=GPU-aaaa1111-2222; "
    "n0 0000:27:00.0 0302 10de:2330 nvml1*NVIDIAUUID=GPU-bbbb1111-2222; "
    "n1 0000:97:00.0 0302 10de:2330 nvml2*NVIDIAUUID=GPU-cccc1111-2222; "
    "n1 0000:a7:00.0 0302 10de:2330 nvml3*NVIDIAUUID=GPU-dddd1111-2222; "
    "n0 0000:18:00.0 0207 15b3:1021 mlx5_0; n0 0000:28:00.0 0207 15b3:1021 "
    "mlx5_1; n1 0000:98:00.0 0207 15b3:1021 mlx5_2; "
    "n1 0000:a8:00.0 0207 15b3:1021 mlx5_3"};
/* A future device that CUDA counts as two. */
static const struct made_machine two_in_one = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:17:00.0 0302 10de:307f cuda0 cuda1 nvml0; "
    "n1 0000:97:00.0 0302 10de:307f cuda2 cuda3 nvml1"};

static const struct made_machine knl_flat = {1, 4, 1, 16, "hbm", ""};
static const struct made_machine gpu_memory = {
    2,        1,
    2,        4,
    "memory", "n0 0004:04:00.0 0302 10de:1db1; n1 0035:03:00.0 0302 10de:1db1"};
static const struct made_machine no_numa = {
    1, 1,  1,
    8, "", "m 0000:04:00.0 0302 10de:2335; m 0000:05:00.0 0302 10de:2335"};
static const struct made_machine gh200 = {
    4,
    1,
    1,
    8,
    "",
    "n0 0009:01:00.0 0302 10de:2342; n1 0019:01:00.0 0302 10de:2342; "
    "n2 0029:01:00.0 0302 10de:2342; n3 0039:01:00.0 0302 10de:2342; "
    "n0 0000:01:00.0 0200 17db:0501 hsn0; n1 0010:01:00.0 0200 17db:0501 hsn1; "
    "n2 0020:01:00.0 0200 17db:0501 hsn2; n3 0030:01:00.0 0200 17db:0501 hsn3"};
/* As hwloc lists Slingshot before and since 2.14; the cards' numbers run
 * against the bus. */
static const struct made_machine slingshot_old = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:03:00.0 0302 10de:20b0; n1 0000:c1:00.0 0302 10de:20b0; "
    "n0 0000:01:00.0 0200 17db:0501 hsn1; n1 0000:c2:00.0 0200 17db:0501 hsn0"};
static const struct made_machine slingshot_new = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:03:00.0 0302 10de:20b0; n1 0000:c1:00.0 0302 10de:20b0; "
    "n0 0000:01:00.0 0200 17db:0501 hsn1 cxi1; "
    "n1 0000:c2:00.0 0200 17db:0501 hsn0 cxi0"};
static const struct made_machine efa = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:53:00.0 0302 10de:2330; n1 0000:9b:00.0 0302 10de:2330; "
    "n0 0000:52:00.0 0200 1d0f:efa2 rdmap82s0; "
    "n1 0000:9a:00.0 0200 1d0f:efa2 rdmap154s0"};
/* One GPU belongs to a NUMA node, the other to a cache in it. */
static const struct made_machine nested = {
    1, 1,  2,
    4, "", "n0 0000:17:00.0 0302 10de:20b2; l1 0000:27:00.0 0302 10de:20b2"};
/* Firmware that knows the package alone. */
static const struct made_machine by_package = {
    2, 4,  1,
    2, "", "p0 0000:17:00.0 0302 10de:20b2; p1 0000:97:00.0 0302 10de:20b2"};
/* A processor's own graphics beside two GPUs; ROCm's and CUDA's numbers count
 * their own alone. */
static const struct made_machine mixed = {
    2,
    1,
    1,
    4,
    "",
    "n0 0000:00:02.0 0380 8086:a780; n0 0000:17:00.0 0302 10de:26b9; "
    "n1 0000:97:00.0 0302 10de:26b9"};

#define NO_NUMA_GPU(bus, id)                                                 \
    "<pci busid=\"0000:" bus ":00.0\" class=\"0x030200\" vendor=\"0x10de\" " \
    "device=\"" id "\"><gpu dev=\"0\" sm=\"90\"/></pci>"
static const char vm_h200[] =
    "<system version=\"1\"><cpu numaid=\"-1\" affinity=\"ffff\">" NO_NUMA_GPU(
        "04", "0x2335") NO_NUMA_GPU("05", "0x2335") "</cpu></system>";
static const char gb10[] =
    "<system version=\"1\"><cpu numaid=\"-1\" "
    "affinity=\"fffff\">" NO_NUMA_GPU("01", "0x2e12") "</cpu></system>";

/* ---- the table ---- */

/* An island here is of two GPUs or more. `env` is the environment of the step;
 * `seats`: "GPU:cores:NICs" of each of its tasks, "" where there are none. */
static const struct {
    const char *name;
    const struct made_machine *made; /* else text, else the file `name` */
    const char *text;
    int gpus, islands, numa, nics;
    const char *env, *seats, *variable;
} rows[] = {
    {"MI250X, NPS4: a die's own cache", &mi250x_nps4, NULL, 8, 0, 4, 4,
     "ROCR_VISIBLE_DEVICES=1,3 SLURM_STEP_GPUS=1,3",
     "1:56-63:cxi0 3:24-31:cxi1", "1,3"},
    {"MI250X, NPS1", &mi250x_nps1, NULL, 8, 0, 1, 4,
     "ROCR_VISIBLE_DEVICES=1,3 SLURM_STEP_GPUS=1,3",
     "1:56-63:cxi0 3:24-31:cxi1", "1,3"},
    {"MI250X, a full node", &mi250x_nps1, NULL, 8, 0, 1, 4,
     "ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 SLURM_STEP_GPUS=0,1,2,3,4,5,6,7",
     "0:48-55:cxi0 1:56-63:cxi0 2:16-23:cxi1 3:24-31:cxi1 4:0-7:cxi2 "
     "5:8-15:cxi2 6:32-39:cxi3 7:40-47:cxi3",
     "0,1,2,3,4,5,6,7"},
    {"MI300X in four partitions", &mi300x_parts, NULL, 8, 2, 2, 2,
     "ROCR_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3",
     "4:8-9:mlx5_1 5:10-11:mlx5_1 6:12-13:mlx5_1 7:14-15:mlx5_1", "0,1,2,3"},
    {"... in a device cgroup", &mi300x_parts, NULL, 8, 2, 2, 2,
     "ROCR_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=4,5",
     "0:0-3:mlx5_0 1:4-7:mlx5_0", "0,1"},
    {"AMD's device files in another order", &mi210_files, NULL, 2, 0, 2, 0,
     "ROCR_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=0",
     "unknown: Slurm and ROCm count this node's GPUs in different orders", "0"},
    {"... in a device cgroup", &mi210_files, NULL, 2, 0, 2, 0,
     "ROCR_VISIBLE_DEVICES=0 SLURM_STEP_GPUS=1", "1:4-7:", "0"},
    {"... all of them", &mi210_files, NULL, 2, 0, 2, 0,
     "ROCR_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-3: 1:4-7:", "1,0"},
    {"... by UUID", &mi210_files, NULL, 2, 0, 2, 0,
     "ROCR_VISIBLE_DEVICES=GPU-00bb00bb00bb00bb SLURM_STEP_GPUS=0",
     "1:4-7:", "GPU-00bb00bb00bb00bb"},
    {"AMD's order unknown", &mi210_unknown, NULL, 2, 0, 2, 0,
     "ROCR_VISIBLE_DEVICES=1,0 SLURM_STEP_GPUS=0,1",
     "unknown: the order in which ROCm counts", "1,0"},
    {"Ponte Vecchio: tiles", &two_pvc, NULL, 4, 2, 2, 2,
     "ZE_AFFINITY_MASK=0,1 SLURM_STEP_GPUS=0,1", "0:0-1:cxi0 1:2-3:cxi0",
     "0,1"},
    {"... cards", &two_pvc, NULL, 4, 2, 2, 2,
     "ZE_AFFINITY_MASK=0,1 SLURM_STEP_GPUS=0,1 "
     "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE",
     "0:0-3:cxi0 2:4-7:cxi1", "0,1"},
    {"... tiles of cards", &two_pvc, NULL, 4, 2, 2, 2,
     "ZE_AFFINITY_MASK=1.0,0.1 SLURM_STEP_GPUS=0,1 "
     "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE",
     "1:0-3:cxi0 2:4-7:cxi1", "1.0,0.1"},
    {"... in a device cgroup", &two_pvc, NULL, 4, 2, 2, 2,
     "ZE_AFFINITY_MASK=0,1 SLURM_STEP_GPUS=1", "2:4-5:cxi1 3:6-7:cxi1", "0,1"},
    {"tiles as Level Zero lists them, HBM", &pvc_hbm, NULL, 4, 2, 2, 0,
     "ZE_AFFINITY_MASK=1,2 SLURM_STEP_GPUS=0,1,2", "1:0-3: 2:4-7:", "1,2"},
    {"MIG instances", &mig, NULL, 4, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=MIG-b1111111-2222,MIG-c1111111-2222 "
     "SLURM_STEP_GPUS=1,2",
     "1:0-3:mlx5_0 2:4-7:mlx5_1", "MIG-b1111111-2222"},
    {"... of one GPU", &mig, NULL, 4, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=MIG-c1111111-2222,MIG-d1111111-2222 "
     "SLURM_STEP_GPUS=1,2",
     "2:4-5:mlx5_1 3:6-7:mlx5_1", "MIG-c1111111-2222"},
    {"... that are new", &mig, NULL, 4, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=MIG-e1111111-2222,MIG-a1111111-2222 "
     "SLURM_STEP_GPUS=1,2",
     "unknown: GPU MIG-e1111111-2222 is none", "MIG-e1111111-2222"},
    {"... by number", &mig, NULL, 4, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "unknown: GPU 0 of",
     "0,1"},
    {"H100 by UUID", &h100, NULL, 4, 0, 2, 4,
     "CUDA_VISIBLE_DEVICES=GPU-dddd1111-2222,GPU-aaaa SLURM_STEP_GPUS=0,3",
     "0:0-3:mlx5_0 3:4-7:mlx5_3", "GPU-aaaa,GPU-dddd1111-2222"},
    {"H100 in a device cgroup", &h100, NULL, 4, 0, 2, 4,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=2,3",
     "2:4-5:mlx5_2 3:6-7:mlx5_3", "0,1"},
    {"a device that CUDA counts twice", &two_in_one, NULL, 4, 2, 2, 0,
     "CUDA_VISIBLE_DEVICES=1,2 SLURM_STEP_GPUS=1,2", "1:0-3: 2:4-7:", "1,2"},
    {"Knights Landing, flat", &knl_flat, NULL, 0, 0, 4, 0, "", "", ""},
    {"POWER9: memory of GPUs", &gpu_memory, NULL, 2, 0, 2, 0,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-7: 1:8-15:", "0,1"},
    {"a virtual machine, hwloc", &no_numa, NULL, 2, 0, 1, 0,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-3: 1:4-7:", "0,1"},
    {"a virtual machine, NCCL", NULL, vm_h200, 2, 0, 0, 0, "", "", ""},
    {"GB10, NCCL", NULL, gb10, 1, 0, 0, 0, "", "", ""},
    {"four GH200", &gh200, NULL, 4, 0, 4, 4,
     "CUDA_VISIBLE_DEVICES=3,0 SLURM_STEP_GPUS=0,3", "0:0-7:cxi0 3:24-31:cxi3",
     "0,3"},
    {"Slingshot before hwloc 2.14", &slingshot_old, NULL, 2, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-3:cxi1 1:4-7:cxi0",
     "0,1"},
    {"Slingshot since then", &slingshot_new, NULL, 2, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-3:cxi1 1:4-7:cxi0",
     "0,1"},
    {"EFA", &efa, NULL, 2, 0, 2, 2,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1",
     "0:0-3:rdmap82s0 1:4-7:rdmap154s0", "0,1"},
    {"a NUMA node and a cache in it", &nested, NULL, 2, 0, 1, 0,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-3: 1:4-7:", "0,1"},
    {"packages of four NUMA nodes", &by_package, NULL, 2, 0, 8, 0,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "0:0-7: 1:8-15:", "0,1"},
    {"a processor's graphics beside GPUs", &mixed, NULL, 3, 0, 2, 0,
     "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", "1:0-3: 2:4-7:", "0,1"},
    {"clusters/tuo.CPX.xml", NULL, NULL, 24, 1, 4, 4,
     "ROCR_VISIBLE_DEVICES=0,1,2,3 SLURM_STEP_GPUS=0,1,2,3",
     "0:0-5,96-101:cxi0 1:6-11,102-107:cxi0 2:12-17,108-113:cxi0 "
     "3:18-23,114-119:cxi0",
     "0,1,2,3"},
    {"clusters/tuo.CPX.xml", NULL, NULL, 24, 1, 4, 4,
     "ROCR_VISIBLE_DEVICES=20,21,22,23 SLURM_STEP_GPUS=20,21,22,23",
     "20:72-77,168-173:cxi3 21:78-83,174-179:cxi3 22:84-89,180-185:cxi3 "
     "23:90-95,186-191:cxi3",
     "20,21,22,23"},
    {"clusters/epyc-corona-p2.xml", NULL, NULL, 8, 0, 2, 1,
     "ROCR_VISIBLE_DEVICES=1,3 SLURM_STEP_GPUS=1,3",
     "1:0-11,48-59:mlx5_0 2:12-23,60-71:mlx5_0", "3,1"},
    {"clusters/made-aurora-pvc.xml", NULL, NULL, 4, 2, 2, 0,
     "ZE_AFFINITY_MASK=0,1 SLURM_STEP_GPUS=0,1", "0:0: 1:1:", "0,1"},
    {"clusters/perlmutter-a100-nid001056.xml", NULL, NULL, 4, 1, 4, 4, "", "",
     ""},
    {"clusters/rccl-8p_942vm-azure-mi300x.xml", NULL, NULL, 8, 1, 2, 8, "", "",
     ""},
    {"clusters/datacrunch-gb300-1tray.xml", NULL, NULL, 4, 1, 2, 1, "", "", ""},
    {"clusters/datacrunch-gb300-1tray-fault-gpu1.xml", NULL, NULL, 4, 1, 2, 1,
     "", "", ""},
};

#endif
