/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/gpu_types.h"

#include <errno.h>
#include <string.h>

/* Sources, all for the SXM/OAM form of the part:
 *  v100-32g   NVIDIA V100 data sheet (2020): 125 TFLOP/s tensor, 15.7 fp32,
 *             900 GB/s, NVLink 300 GB/s both ways; DGX-2: 8 x 100 Gb/s for 16
 *  a100-40g   NVIDIA A100 data sheet (2021): 312, fp32 19.5, TF32 156,
 *  a100-80g   1,555 and 2,039 GB/s, NVLink 600; DGX A100: 8 x 200 Gb/s for 8
 *  h100       NVIDIA H100 data sheet (2023), dense (half of what it says with
 *             sparsity): 989, fp32 67, TF32 495, fp8 1,979, 80 GB, 3,350
 *             GB/s, NVLink 900 GB/s; DGX H100: 8 x 400 Gb/s for 8
 *  h200       NVIDIA H200 data sheet (2024): as H100, 141 GB, 4,800 GB/s
 *  b200       NVIDIA DGX B200 data sheet (2024), per GPU and dense: 2,250,
 *             fp32 75, TF32 1,125, fp8 4,500 (72 PFLOP/s for 8, sparse), 180
 *             GB, 8,000 GB/s, NVLink 1,800 GB/s, 400 Gb/s
 *  mi250x     AMD Instinct MI250X data sheet (2021), per GCD, which is what
 *             the system shows as a GPU: 191.5 (fp16, bf16), fp32 matrix
 *             47.9, 64 GB, 1,638 GB/s; xGMI 50 GB/s to most peers and 200 in
 *             the package (OLCF Frontier user guide): 100 taken; Slingshot
 *             4 x 200 Gb/s for 8
 *  mi300a     AMD Instinct MI300A data sheet (2023), dense: 980.6, fp32
 *             122.6, TF32 490.3, fp8 1,961, 128 GB, 5,300 GB/s; three peers
 *             at 128 GB/s each way; Slingshot 200 Gb/s for each of 4 (LLNL El
 *             Capitan)
 *  cpu        a two-socket server of 2022: 64 cores x 2.5 GHz x 32 fp32
 *             FLOP/cycle, no faster in bf16, 16 DDR5 channels, 100 Gb/s
 * Link latencies and the effective NVLink bandwidth (0.8 of the data sheet:
 * 20 of 25 GB/s a link, 20.6 for Hopper, 40.1 of 50 for Blackwell) follow
 * NCCL's own model (src/graph/topo.h, tuning.cc in 2.28). NIC latencies are
 * NCCL's network ring steps. `matmul` and `layer_s` are the two numbers
 * fitted to the table of Narayanan et al., SC21 (tests/unit/test_estimate.c).
 * Unfused attention is the rule in the software of the V100 and A100 years. */
#define GB 1e9
#define US 1e-6
#define FITTED 0.727, 721 * US
/* host: PCIe 3, 4 and 5 x16 after protocol, shared with nobody */
const struct plait_gpu_type plait_gpu_types[PLAIT_NGPU_TYPES] = {
    {"v100-32g", 125e12, 15.7e12, 15.7e12, 125e12, 32 * GB, 900 * GB, 16,
     120 * GB, 2 * US, 12 * GB, 6.25 * GB, 7 * US, 1 * US, 2, 80, FITTED, 13},
    {"a100-40g", 312e12, 19.5e12, 156e12, 312e12, 40 * GB, 1555 * GB, 8,
     240 * GB, 2 * US, 24 * GB, 25 * GB, 7 * US, 1 * US, 2, 108, FITTED, 13},
    {"a100-80g", 312e12, 19.5e12, 156e12, 312e12, 80 * GB, 2039 * GB, 8,
     240 * GB, 2 * US, 24 * GB, 25 * GB, 7 * US, 1 * US, 2, 108, FITTED, 13},
    {"h100", 989e12, 67e12, 495e12, 1979e12, 80 * GB, 3350 * GB, 8, 370 * GB,
     2 * US, 48 * GB, 50 * GB, 7 * US, 1 * US, 2, 132, FITTED, 0},
    {"h200", 989e12, 67e12, 495e12, 1979e12, 141 * GB, 4800 * GB, 8, 370 * GB,
     2 * US, 48 * GB, 50 * GB, 7 * US, 1 * US, 2, 132, FITTED, 0},
    {"b200", 2250e12, 75e12, 1125e12, 4500e12, 180 * GB, 8000 * GB, 8, 720 * GB,
     2 * US, 48 * GB, 50 * GB, 7 * US, 1 * US, 2, 148, FITTED, 0},
    {"mi250x", 191.5e12, 47.9e12, 47.9e12, 191.5e12, 64 * GB, 1638 * GB, 8,
     80 * GB, 3 * US, 24 * GB, 12.5 * GB, 7 * US, 1 * US, 2, 110, FITTED, 0},
    {"mi300a", 980.6e12, 122.6e12, 490.3e12, 1961.2e12, 128 * GB, 5300 * GB, 4,
     300 * GB, 3 * US, 48 * GB, 25 * GB, 7 * US, 1 * US, 2, 228, FITTED, 0},
    {"cpu", 5.1e12, 5.1e12, 5.1e12, 5.1e12, 512 * GB, 500 * GB, 1, 50 * GB,
     1 * US, 24 * GB, 12.5 * GB, 20 * US, 2 * US, 2, 0, FITTED, 0},
};

const char *plait_gpu_type_names(void)
{
    return "v100-32g a100-40g a100-80g h100 h200 b200 mi250x mi300a cpu";
}

int plait_gpu_type_find(const char *name, struct plait_gpu_type *type,
                        struct plait_error *err)
{
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++)
        if (strcasecmp(plait_gpu_types[i].name, name) == 0) {
            *type = plait_gpu_types[i];
            return 0;
        }
    errno = EINVAL;
    return plait_errorf(err, "no GPU type \"%.40s\"; there are %s", name,
                        plait_gpu_type_names());
}

const char *plait_gpu_type_guess(const char *model)
{
    /* The chip's name (GH100) holds that of another product: first match. */
    static const struct {
        const char *word, *size, *type;
    } known[] = {
        {"B200", "", "b200"},       {"H200", "", "h200"},
        {"H100", "", "h100"},       {"A100", "80", "a100-80g"},
        {"A100", "40", "a100-40g"}, {"V100", "32", "v100-32g"},
        {"MI250X", "", "mi250x"},   {"MI300A", "", "mi300a"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(model, known[i].word) && strstr(model, known[i].size))
            return known[i].type;
    return NULL;
}
