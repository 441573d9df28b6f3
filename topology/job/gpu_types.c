/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/gpu_types.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "topology/base/nearest.h"
#include "topology/node/node.h"

/* Sources, all for the SXM/OAM form of the part:
 *  v100-32g   NVIDIA V100 data sheet (2020): 125 TFLOP/s tensor, 15.7 fp32,
 *             900 GB/s, NVLink 300 GB/s both ways; DGX-2: 8 x 100 Gb/s for 16
 *  a100-40g   NVIDIA A100 data sheet (2021): 312, fp32 19.5, TF32 156,
 *  a100-80g   1,555 and 2,039 GB/s, NVLink 600; DGX A100: 8 x 200 Gb/s for 8
 *  a100-64g   CINECA's Leonardo (Turisini et al., JLSRF 2023): 358, fp32 22.4,
 *             TF32 179, 1,640 GB/s, NVLink 600; 2 x 200 Gb/s for 4
 *  h100       NVIDIA H100 data sheet (2023), dense (half of what it says with
 *             sparsity): 989, fp32 67, TF32 495, fp8 1,979, 80 GB, 3,350
 *             GB/s, NVLink 900 GB/s; DGX H100: 8 x 400 Gb/s for 8
 *  h100-pcie  the same, PCIe column: 756, fp32 51, TF32 378, fp8 1,513, 2,000
 *             GB/s; NVLink, if any, joins pairs, so PCIe 5 is taken
 *  h100-nvl   NVIDIA H100 NVL data sheet (2024), dense: 835, fp32 60, TF32
 *             418, fp8 1,671, 94 GB, 3,900 GB/s; pairs, as h100-pcie
 *  h800       as h100 with 8 of 18 NVLinks, 400 GB/s, and
 *  h20        dense: 148, fp32 44, TF32 74, fp8 296, 96 GB, 4,000 GB/s, NVLink
 *             900: as server makers list them, NVIDIA publishes no data sheet
 *  gh200      NVIDIA GH200 data sheet (2024), that with 96 GB: as H100, 4,000
 *             GB/s, C2C to the host 450 GB/s one way; four to a node with
 *             NVLink 900 and 200 Gb/s each (CSCS Alps, JUPITER)
 *  h200       NVIDIA H200 data sheet (2024): as H100, 141 GB, 4,800 GB/s
 *  b200       NVIDIA DGX B200 data sheet (2024), per GPU and dense: 2,250,
 *             fp32 75, TF32 1,125, fp8 4,500 (72 PFLOP/s for 8, sparse), 180
 *             GB, 8,000 GB/s, NVLink 1,800 GB/s, 400 Gb/s
 *  b300       NVIDIA DGX B300 data sheet (2025), per GPU and dense: as B200,
 *             fp8 4,500, 270 GB usable of 2.1 TB for 8, 800 Gb/s
 *  gb200      NVIDIA GB200 NVL72 data sheet (2024), for one of 72 and dense:
 *             2,500, fp32 80, TF32 1,250, fp8 5,000, 186 GB (13.4 TB), 8,000
 *             GB/s, NVLink 1,800 GB/s over the rack, C2C to the host 450
 *             GB/s one way; 400 Gb/s
 *  gb300      NVIDIA GB300 NVL72 data sheet (2025): as GB200, 278 GB (20 TB),
 *             800 Gb/s
 *  l40s       NVIDIA L40S data sheet (2023), dense: 362, fp32 91.6, TF32 183,
 *             fp8 733, 48 GB, 864 GB/s, PCIe 4, no NVLink; 200 Gb/s for 2
 *  rtx-pro-6000  NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet
 *             (2025), dense: 504, fp32 120, TF32 252, fp8 1,007, 96 GB, 1,597
 *             GB/s, PCIe 5, no NVLink; 400 Gb/s for 2
 *  mi250x     AMD Instinct MI250X data sheet (2021), per GCD, which is what
 *             the system shows as a GPU: 191.5 (fp16, bf16), fp32 matrix
 *             47.9, 64 GB, 1,638 GB/s; xGMI 50 GB/s to most peers and 200 in
 *             the package (OLCF Frontier user guide): 100 taken; Slingshot
 *             4 x 200 Gb/s for 8
 *  mi300a     AMD Instinct MI300A data sheet (2023), dense: 980.6, fp32
 *             122.6, TF32 490.3, fp8 1,961, 128 GB, 5,300 GB/s; three peers
 *             at 128 GB/s each way; Slingshot 200 Gb/s for each of 4 (LLNL El
 *             Capitan)
 *  mi300x     AMD Instinct MI300X data sheet (2023), dense: 1,307.4, fp32
 *             163.4, TF32 653.7, fp8 2,614.9, 192 GB, 5,300 GB/s; seven peers
 *             at 64 GB/s each way; 400 Gb/s
 *  mi325x     AMD Instinct MI325X data sheet (2024): as MI300X, 256 GB, 6,000
 *             GB/s
 *  mi350x     AMD Instinct MI350X data sheet (2025), dense: 2,307, fp32 144.2,
 *             no TF32, fp8 4,614, 288 GB, 8,000 GB/s; seven peers at 76.8 GB/s
 *             each way; 400 Gb/s
 *  mi355x     AMD Instinct MI355X data sheet (2025): 2,517, fp32 157.3, fp8
 *             5,033, else as MI350X
 *  pvc        Intel Data Center GPU Max 1550 product brief (2023), per tile,
 *             which is what the system shows as a GPU: 416, fp32 26.2, TF32
 *             209, no fp8, 64 GB, 1,638 GB/s; five Xe Links of 28 GB/s each
 *             way to a tile of each other card and 8 x 200 Gb/s for 12 tiles
 *             (ALCF Aurora user guide); latencies estimated
 *  cpu        a two-socket server of 2022: 64 cores x 2.5 GHz x 32 fp32
 *             FLOP/cycle, no faster in bf16, 16 DDR5 channels, 100 Gb/s
 * sm: "CUDA GPU compute capability" on NVIDIA's developer pages. Channels: what
 * NCCL logs on such machines, 16 on V100 with 6 NVLinks and on H800 with 8, 24
 * on A100 with 12 and Hopper with 18, 32 on Blackwell; AMD's and Intel's links
 * are counted as NVIDIA's of their bandwidth. Switched: NVSwitches add from
 * Hopper on (NCCL's nvls.cc: 16 channels, 24 on Blackwell); the four GPUs of a
 * node of GH200 are joined directly.
 * Link latencies and the effective NVLink bandwidth (0.8 of the data sheet:
 * 20 of 25 GB/s a link, 20.6 for Hopper, 40.1 of 50 for Blackwell) follow
 * NCCL's own model (src/graph/topo.h, tuning.cc in 2.28). NIC latencies are
 * NCCL's network ring steps. The constants at the end of a line are fitted, one
 * for each kind of work, to the half of tests/records that is marked so, for
 * v100, a100, h100, Blackwell, mi250x and gh200; others have those of the
 * nearest, or of single kernels. */
#define GB 1e9
#define US 1e-6
/* What drivers report for a gigabyte of the data sheet: 2^30 bytes less a share
 * that they keep: 79.1 of 80 on an H100, 178.4 of 180 on a B200. */
#define GIB (0.988 * 1073741824)
/* sm, channels, switched */
#define IS_V100 70, 16, 0
#define IS_A100 80, 24, 0
#define IS_L40S 89, 4, 0
#define IS_H100 90, 24, 16
#define IS_H100_PCIE 90, 4, 0
#define IS_H800 90, 16, 16
#define IS_GH200 90, 24, 0
#define IS_B200 100, 32, 24
#define IS_B300 103, 32, 24
#define IS_RTX_PRO 120, 4, 0
#define IS_MI200 0, 4, 0
#define IS_MI300 0, 24, 0
#define IS_PVC 0, 16, 0
#define IS_NONE 0, 4, 0
/* nic_alpha, hop_alpha, oversubscription */
#define NETWORK 7 * US, 1 * US, 2
/* host_memory, less what the system keeps, and whether the type was fitted:
 * 1.5 TB for 16 V100, 2 TB for 8 of most others, 480 GB for 2 Blackwells of a
 * Grace, 512 GB for 8 MI250X; MI300A has no other memory than its own. */
#define HOST_TB2 240 * GB
/* matmul, matmul8, attention: fitted, of AMPERE to the A100's rows, HOPPER to
 * the H100's and H200's, and to those of B200, GB200 and GB300; bf16 of GB200
 * and GB300 to models with experts (no others trained so), of B200 and B300
 * taken from GB200, V100's from the A100. Then stream, layer_s (what
 * a run of a dozen launches leaves between them), score_bytes, and what a
 * site alone knows: headroom first, below 0 where it is the usual one. */
/* crowding, stragglers: topology/predict/scale.h */
#define SCALE 0.05, 0.05
#define HOPPER_SCALE 0, 0.05
#define AMPERE 0.765, 0.765, 0.418, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
#define HOPPER \
    0.633, 0.644, 0.654, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, HOPPER_SCALE, 0
#define BLACKWELL 0.62, 0.51, 0.80, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
#define GRACE_BLACKWELL \
    0.62, 0.52, 0.80, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
#define ULTRA 0.72, 0.645, 0.80, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
/* One constant each, matmul, fitted to LUMI's and Alps' rows of tests/records;
 * the others are the A100's and the H100's. */
#define CDNA2 0.471, 0.471, 0.418, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
#define GRACE 0.575, 0.644, 0.654, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
/* Of single kernels, as no training run is public whose layout is known: the
 * best product in 16 bits reaches 0.601 of the peak (stas00/ml-engineering,
 * maximum achievable matmul; 0.801 on the H100, of which HOPPER's matmul is
 * 0.79), in fp8 0.443 and a copy 0.775 of the memory's rate
 * (AI-benchmarking-guide, Azure ND MI300X v5), attention 0.25. */
#define CDNA3 0.475, 0.35, 0.25, 0.775, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
/* matmul8 fitted to MLPerf's rows of MI350X and MI355X; the others are the
 * H100's. */
#define CDNA4 0.633, 0.521, 0.654, 0.85, 30 * US, 0, -1, 0, 0, 0, 0, SCALE, 0
#define CPU 0.70, 0.70, 0.30, 0.85, 150 * US, 0, 0, 0, 0, 64, 0, 0, 0, 0
/* host_bw: PCIe 3, 4 and 5 x16 net of the protocol, not shared */
const struct plait_gpu_type plait_gpu_types[PLAIT_NGPU_TYPES] = {
    {"v100-32g", IS_V100, 125e12, 15.7e12, 15.7e12, 125e12, 32 * GIB, 900 * GB,
     16, 16, 120 * GB, 2 * US, 12 * GB, 6.25 * GB, NETWORK, 80, 90 * GB, false,
     AMPERE},
    {"a100-40g", IS_A100, 312e12, 19.5e12, 156e12, 312e12, 40 * GIB, 1555 * GB,
     8, 8, 240 * GB, 2 * US, 24 * GB, 25 * GB, NETWORK, 108, HOST_TB2, true,
     AMPERE},
    {"a100-80g", IS_A100, 312e12, 19.5e12, 156e12, 312e12, 80 * GIB, 2039 * GB,
     8, 8, 240 * GB, 2 * US, 24 * GB, 25 * GB, NETWORK, 108, HOST_TB2, true,
     AMPERE},
    {"a100-64g", IS_A100, 358e12, 22.4e12, 179e12, 358e12, 64 * GIB, 1640 * GB,
     4, 4, 240 * GB, 2 * US, 24 * GB, 12.5 * GB, NETWORK, 124, 120 * GB, false,
     AMPERE},
    {"h100", IS_H100, 989e12, 67e12, 495e12, 1979e12, 80 * GIB, 3350 * GB, 8, 8,
     370 * GB, 2 * US, 48 * GB, 50 * GB, NETWORK, 132, HOST_TB2, true, HOPPER},
    {"h100-pcie", IS_H100_PCIE, 756e12, 51e12, 378e12, 1513e12, 80 * GIB,
     2000 * GB, 8, 8, 48 * GB, 5 * US, 48 * GB, 25 * GB, NETWORK, 114, 120 * GB,
     false, HOPPER},
    {"h100-nvl", IS_H100_PCIE, 835e12, 60e12, 418e12, 1671e12, 94 * GIB,
     3900 * GB, 8, 8, 48 * GB, 5 * US, 48 * GB, 25 * GB, NETWORK, 132, 120 * GB,
     false, HOPPER},
    {"h800", IS_H800, 989e12, 67e12, 495e12, 1979e12, 80 * GIB, 3350 * GB, 8, 8,
     165 * GB, 2 * US, 48 * GB, 50 * GB, NETWORK, 132, HOST_TB2, false, HOPPER},
    {"h20", IS_H100, 148e12, 44e12, 74e12, 296e12, 96 * GIB, 4000 * GB, 8, 8,
     370 * GB, 2 * US, 48 * GB, 50 * GB, NETWORK, 78, HOST_TB2, false, HOPPER},
    {"gh200", IS_GH200, 989e12, 67e12, 494e12, 1979e12, 96 * GIB, 4000 * GB, 4,
     4, 370 * GB, 2 * US, 360 * GB, 25 * GB, NETWORK, 132, 420 * GB, true,
     GRACE},
    {"h200", IS_H100, 989e12, 67e12, 495e12, 1979e12, 141 * GIB, 4800 * GB, 8,
     8, 370 * GB, 2 * US, 48 * GB, 50 * GB, NETWORK, 132, HOST_TB2, true,
     HOPPER},
    {"b200", IS_B200, 2250e12, 75e12, 1125e12, 4500e12, 180 * GIB, 8000 * GB, 8,
     8, 720 * GB, 2 * US, 48 * GB, 50 * GB, NETWORK, 148, HOST_TB2, true,
     BLACKWELL},
    {"b300", IS_B300, 2250e12, 75e12, 1125e12, 4500e12, 270 * GIB, 8000 * GB, 8,
     8, 720 * GB, 2 * US, 96 * GB, 100 * GB, NETWORK, 148, HOST_TB2, false,
     BLACKWELL},
    {"gb200", IS_B200, 2500e12, 80e12, 1250e12, 5000e12, 186 * GIB, 8000 * GB,
     4, 72, 720 * GB, 2 * US, 360 * GB, 50 * GB, NETWORK, 148, HOST_TB2, true,
     GRACE_BLACKWELL},
    {"gb300", IS_B300, 2500e12, 80e12, 1250e12, 5000e12, 278 * GIB, 8000 * GB,
     4, 72, 720 * GB, 2 * US, 360 * GB, 100 * GB, NETWORK, 148, HOST_TB2, true,
     ULTRA},
    {"l40s", IS_L40S, 362e12, 91.6e12, 183e12, 733e12, 48 * GIB, 864 * GB, 8, 8,
     24 * GB, 5 * US, 24 * GB, 12.5 * GB, NETWORK, 142, 60 * GB, false, AMPERE},
    {"rtx-pro-6000", IS_RTX_PRO, 504e12, 120e12, 252e12, 1007e12, 96 * GIB,
     1597 * GB, 8, 8, 48 * GB, 5 * US, 48 * GB, 25 * GB, NETWORK, 188, 120 * GB,
     false, AMPERE},
    {"mi250x", IS_MI200, 191.5e12, 47.9e12, 47.9e12, 191.5e12, 64 * GIB,
     1638 * GB, 8, 8, 80 * GB, 3 * US, 24 * GB, 12.5 * GB, NETWORK, 110,
     60 * GB, true, CDNA2},
    {"mi300a", IS_MI300, 980.6e12, 122.6e12, 490.3e12, 1961.2e12, 128 * GIB,
     5300 * GB, 4, 4, 300 * GB, 3 * US, 48 * GB, 25 * GB, NETWORK, 228, 0,
     false, CDNA3},
    {"mi300x", IS_MI300, 1307.4e12, 163.4e12, 653.7e12, 2614.9e12, 192 * GIB,
     5300 * GB, 8, 8, 350 * GB, 3 * US, 48 * GB, 50 * GB, NETWORK, 304,
     HOST_TB2, false, CDNA3},
    {"mi325x", IS_MI300, 1307.4e12, 163.4e12, 653.7e12, 2614.9e12, 256 * GIB,
     6000 * GB, 8, 8, 350 * GB, 3 * US, 48 * GB, 50 * GB, NETWORK, 304,
     HOST_TB2, false, CDNA3},
    {"mi350x", IS_MI300, 2307e12, 144.2e12, 144.2e12, 4614e12, 288 * GIB,
     8000 * GB, 8, 8, 430 * GB, 3 * US, 48 * GB, 50 * GB, NETWORK, 256,
     HOST_TB2, true, CDNA4},
    {"mi355x", IS_MI300, 2517e12, 157.3e12, 157.3e12, 5033e12, 288 * GIB,
     8000 * GB, 8, 8, 430 * GB, 3 * US, 48 * GB, 50 * GB, NETWORK, 256,
     HOST_TB2, true, CDNA4},
    {"pvc", IS_PVC, 416e12, 26.2e12, 209e12, 416e12, 64 * GIB, 1638 * GB, 12,
     12, 112 * GB, 3 * US, 24 * GB, 16.7 * GB, NETWORK, 64, 60 * GB, false,
     AMPERE},
    {"cpu",    IS_NONE, 5.1e12, 5.1e12,  5.1e12, 5.1e12,  512 * GB,
     500 * GB, 1,       1,      50 * GB, 1 * US, 24 * GB, 12.5 * GB,
     20 * US,  2 * US,  2,      0,       0,      true,    CPU},
};

static void scale_rates(struct plait_gpu_type *type, double by)
{
    type->flops16 *= by;
    type->flops32 *= by;
    type->flops_tf32 *= by;
    type->flops8 *= by;
    type->memory_bw *= by;
}

double plait_gpu_type_share(const struct plait_gpu_type *type, int ranks,
                            struct plait_gpu_type *rank)
{
    double here = fmin(ranks, type->per_node), threads = type->threads;

    *rank = *type;
    if (type->cores <= 0)
        return 1;
    if (threads <= 0)
        threads = floor(type->cores / here);
    threads = rank->threads = fmax(1, fmin(threads, type->cores));
    scale_rates(rank, threads / type->cores);
    return here * threads / type->cores;
}

void plait_gpu_type_set_node(struct plait_gpu_type *type, int per_node)
{
    if (type->domain == type->per_node)
        type->domain = per_node;
    type->per_node = per_node;
}

int plait_gpu_type_tasks(const struct plait_gpu_type *type, int gpus)
{
    int tasks = gpus < type->per_node ? gpus : type->per_node;

    while (gpus % tasks)
        tasks--;
    return tasks;
}

/* A few cores reach up to this many times their share of the node's memory
 * bandwidth. */
#define CORE_MEMORY 3

void plait_gpu_type_set_cores(struct plait_gpu_type *type, double cores)
{
    double all = type->memory_bw;

    if (type->cores <= 0 || cores <= 0 || cores == type->cores)
        return;
    scale_rates(type, cores / type->cores);
    if (cores < type->cores)
        type->memory_bw = fmin(CORE_MEMORY * type->memory_bw, all);
    type->cores = cores;
}

#define HEADROOM 4e9
#define HEADROOM_MOST 0.1
#define HEADROOM_SHARE 0.06

double plait_gpu_type_room(const struct plait_gpu_type *type)
{
    double headroom = type->headroom;

    if (headroom < 0)
        headroom = fmax(fmin(HEADROOM, HEADROOM_MOST * type->memory),
                        HEADROOM_SHARE * type->memory);
    return fmax(0, type->memory - headroom);
}

void plait_gpu_type_warn(const struct plait_gpu_type *type, char *text,
                         size_t size)
{
    if (type->fitted)
        snprintf(text, size, "%s", "");
    else
        snprintf(text, size,
                 "no published run of %s was at hand: its speed is computed "
                 "with constants of another type or of single kernels and may "
                 "be wrong by half; "
                 "plait calibrate sets them from runs of your own",
                 type->name);
}

const char *plait_gpu_type_names(void)
{
    return "v100-32g a100-40g a100-80g a100-64g h100 h100-pcie h100-nvl h800 "
           "h20 gh200 h200 b200 b300 gb200 gb300 l40s rtx-pro-6000 mi250x "
           "mi300a mi300x mi325x mi350x mi355x pvc cpu";
}

int plait_gpu_type_find(const char *name, struct plait_gpu_type *type,
                        struct plait_error *err)
{
    const char *names[PLAIT_NGPU_TYPES];
    int nearest;

    for (int i = 0; i < PLAIT_NGPU_TYPES; i++)
        if (strcasecmp(plait_gpu_types[i].name, name) == 0) {
            *type = plait_gpu_types[i];
            return 0;
        }
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++)
        names[i] = plait_gpu_types[i].name;
    nearest = plait_nearest(name, names, PLAIT_NGPU_TYPES);
    errno = EINVAL;
    if (nearest >= 0)
        return plait_errorf(err,
                            "no GPU type \"%.40s\"; did you mean %s? There "
                            "are %s",
                            name, names[nearest], plait_gpu_type_names());
    return plait_errorf(err, "no GPU type \"%.40s\"; there are %s", name,
                        plait_gpu_type_names());
}

/* One name may contain another (GB200, B200), so the first match counts. */
static const struct {
    const char *word, *size, *type;
} known[] = {
    /* clang-format off */
    {"GB200", "", "gb200"},
    {"GB300", "", "gb300"},
    {"B200", "", "b200"},
    {"B300", "", "b300"},
    {"GH200", "144G", NULL}, /* the type has 96 GB */
    {"GH200", "", "gh200"},
    {"H200", "NVL", NULL},   /* a PCIe board, as H800 PCIe */
    {"H200", "", "h200"},
    {"H20", "", "h20"},
    {"H100", "PCI", "h100-pcie"},
    {"H100", "NVL", "h100-nvl"},
    {"H100", "64GB", NULL},  /* of single sites, with other memories */
    {"H100", "94GB", NULL},
    {"H100", "96GB", NULL},
    {"H100", "", "h100"},
    {"H800", "PCI", NULL},
    {"H800", "", "h800"},
    {"A100", "80", "a100-80g"},
    {"A100", "64", "a100-64g"},
    {"A100", "40", "a100-40g"},
    {"V100", "32", "v100-32g"},
    {"L40S", "", "l40s"},
    {"MI250X", "", "mi250x"},
    {"MI300A", "", "mi300a"},
    {"MI300X", "", "mi300x"},
    {"MI325X", "", "mi325x"},
    {"MI350X", "", "mi350x"},
    {"MI355X", "", "mi355x"},
    /* AMD's libraries name MI250X so, MI250 by its own number. */
    {"MI200 (MCM)", "", "mi250x"},
    {"Max 1550", "", "pvc"},
    {"RTX PRO 6000D", "", NULL},
    {"RTX PRO 6000", "", "rtx-pro-6000"},
    /* clang-format on */
};

const char *plait_gpu_type_guess(const char *model)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(model, known[i].word) && strstr(model, known[i].size))
            return known[i].type;
    return NULL;
}

const char *plait_gpu_type_of(const struct plait_gpu *gpu)
{
    const char *name = plait_gpu_known_model(gpu);

    /* The figures are those of a whole GPU, but of Intel's those of a tile. */
    if (gpu->parts > 1 && strcmp(gpu->vendor, "intel") != 0)
        return NULL;
    if (plait_gpu_is_mig(gpu))
        return NULL;
    return plait_gpu_type_guess(name[0] ? name : gpu->model);
}
