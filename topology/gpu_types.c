/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_types.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "yaml.h"

/* Sources, all for the SXM/OAM form of the part:
 *  v100-32g   NVIDIA V100 data sheet (2020): 125 TFLOP/s tensor, 15.7 fp32,
 *             900 GB/s, NVLink 300 GB/s both ways; DGX-2: 8 x 100 Gb/s for 16
 *  a100-40g   NVIDIA A100 data sheet (2021): 312, TF32 156, 1,555 GB/s,
 *  a100-80g   2,039 GB/s, NVLink 600 GB/s; DGX A100: 8 x 200 Gb/s for 8
 *  h100       NVIDIA H100 data sheet (2023), dense: 989, TF32 495, 80 GB,
 *             3,350 GB/s, NVLink 900 GB/s; DGX H100: 8 x 400 Gb/s for 8
 *  h200       NVIDIA H200 data sheet (2024): as H100, 141 GB, 4,800 GB/s
 *  b200       NVIDIA DGX B200 data sheet (2024), per GPU and dense: 2,250,
 *             TF32 1,125, 180 GB, 8,000 GB/s, NVLink 1,800 GB/s, 400 Gb/s
 *  mi250x     AMD Instinct MI250X data sheet (2021), per GCD, which is what
 *             the system shows as a GPU: 191.5 (fp16, bf16), fp32 matrix
 *             47.9, 64 GB, 1,638 GB/s; xGMI 50 GB/s to most peers and 200 in
 *             the package (OLCF Frontier user guide): 100 taken; Slingshot
 *             4 x 200 Gb/s for 8
 *  mi300a     AMD Instinct MI300A data sheet (2023), dense: 980.6, fp32
 *             122.6, 128 GB, 5,300 GB/s; three peers at 128 GB/s each way;
 *             Slingshot 200 Gb/s for each of 4 (LLNL El Capitan)
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
#define FITTED 0.73, 740 * US
/* host: PCIe 3, 4 and 5 x16 after protocol, shared with nobody */
static const struct plait_gpu_type types[] = {
    {"v100-32g", 125e12, 15.7e12, 32 * GB, 900 * GB, 16, 120 * GB, 2 * US,
     12 * GB, 6.25 * GB, 7 * US, 1 * US, 2, 80, FITTED, 13},
    {"a100-40g", 312e12, 156e12, 40 * GB, 1555 * GB, 8, 240 * GB, 2 * US,
     24 * GB, 25 * GB, 7 * US, 1 * US, 2, 108, FITTED, 13},
    {"a100-80g", 312e12, 156e12, 80 * GB, 2039 * GB, 8, 240 * GB, 2 * US,
     24 * GB, 25 * GB, 7 * US, 1 * US, 2, 108, FITTED, 13},
    {"h100", 989e12, 495e12, 80 * GB, 3350 * GB, 8, 370 * GB, 2 * US, 48 * GB,
     50 * GB, 7 * US, 1 * US, 2, 132, FITTED, 0},
    {"h200", 989e12, 495e12, 141 * GB, 4800 * GB, 8, 370 * GB, 2 * US, 48 * GB,
     50 * GB, 7 * US, 1 * US, 2, 132, FITTED, 0},
    {"b200", 2250e12, 1125e12, 180 * GB, 8000 * GB, 8, 720 * GB, 2 * US,
     48 * GB, 50 * GB, 7 * US, 1 * US, 2, 148, FITTED, 0},
    {"mi250x", 191.5e12, 47.9e12, 64 * GB, 1638 * GB, 8, 80 * GB, 3 * US,
     24 * GB, 12.5 * GB, 7 * US, 1 * US, 2, 110, FITTED, 0},
    {"mi300a", 980.6e12, 122.6e12, 128 * GB, 5300 * GB, 4, 300 * GB, 3 * US,
     48 * GB, 25 * GB, 7 * US, 1 * US, 2, 228, FITTED, 0},
    {"cpu", 5.1e12, 5.1e12, 512 * GB, 500 * GB, 1, 50 * GB, 1 * US, 24 * GB,
     12.5 * GB, 20 * US, 2 * US, 2, 0, FITTED, 0},
};
enum { NTYPES = sizeof(types) / sizeof(types[0]) };

const char *plait_gpu_type_names(void)
{
    return "v100-32g a100-40g a100-80g h100 h200 b200 mi250x mi300a cpu";
}

int plait_gpu_type_find(const char *name, struct plait_gpu_type *type,
                        struct plait_error *err)
{
    for (int i = 0; i < NTYPES; i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i];
            return 0;
        }
    errno = EINVAL;
    return plait_errorf(err, "no GPU type \"%.40s\"; there are %s", name,
                        plait_gpu_type_names());
}

/* What a site file may say of a type, in the units people use. */
struct site {
    double tflops, tflops_fp32, memory_gb, memory_gbps, link_gbps, link_us,
        host_gbps, nic_gbps, nic_us, hop_us, oversubscription, matmul, layer_us,
        score_bytes;
    int per_node;
};

#define REAL(key, least, most)                                                 \
    {                                                                          \
        .name = #key, .type = PLAIT_YAML_REAL,                                 \
        .offset = offsetof(struct site, key), .min = least, .max = most        \
    }

static const struct plait_yaml_field site_fields[] = {
    REAL(tflops, 1e-3, 1e6),
    REAL(tflops_fp32, 1e-3, 1e6),
    REAL(memory_gb, 1e-3, 1e6),
    REAL(memory_gbps, 1e-3, 1e6),
    REAL(link_gbps, 1e-3, 1e6),
    REAL(link_us, 0, 1e6),
    REAL(host_gbps, 1e-3, 1e6),
    REAL(nic_gbps, 1e-3, 1e6),
    REAL(nic_us, 0, 1e6),
    REAL(hop_us, 0, 1e6),
    REAL(oversubscription, 1e-3, 1e3),
    REAL(matmul, 1e-3, 1),
    REAL(layer_us, 0, 1e6),
    REAL(score_bytes, 0, 100),
    {.name = "per_node",
     .type = PLAIT_YAML_INT,
     .offset = offsetof(struct site, per_node),
     .min = 1,
     .max = 1024},
};

static void to_site(const struct plait_gpu_type *t, struct site *s)
{
    *s = (struct site){.tflops = t->flops16 / 1e12,
                       .tflops_fp32 = t->flops32 / 1e12,
                       .memory_gb = t->memory / GB,
                       .memory_gbps = t->memory_bw / GB,
                       .link_gbps = t->link_bw / GB,
                       .link_us = t->link_alpha / US,
                       .host_gbps = t->host_bw / GB,
                       .nic_gbps = t->nic_bw / GB,
                       .nic_us = t->nic_alpha / US,
                       .hop_us = t->hop_alpha / US,
                       .oversubscription = t->oversubscription,
                       .matmul = t->matmul,
                       .layer_us = t->layer_s / US,
                       .score_bytes = t->score_bytes,
                       .per_node = t->per_node};
}

static void from_site(const struct site *s, struct plait_gpu_type *t)
{
    t->flops16 = s->tflops * 1e12;
    t->flops32 = s->tflops_fp32 * 1e12;
    t->memory = s->memory_gb * GB;
    t->memory_bw = s->memory_gbps * GB;
    t->per_node = s->per_node;
    t->link_bw = s->link_gbps * GB;
    t->link_alpha = s->link_us * US;
    t->host_bw = s->host_gbps * GB;
    t->nic_bw = s->nic_gbps * GB;
    t->nic_alpha = s->nic_us * US;
    t->hop_alpha = s->hop_us * US;
    t->oversubscription = s->oversubscription;
    t->matmul = s->matmul;
    t->layer_s = s->layer_us * US;
    t->score_bytes = s->score_bytes;
}

static int override(struct plait_gpu_type *type, struct plait_yaml *yaml,
                    yaml_node_t *root, struct plait_error *err)
{
    struct plait_gpu_type changed = *type;

    for (int i = 0; i < plait_yaml_count(root); i++) {
        yaml_node_t *key, *value = plait_yaml_pair(yaml, root, i, &key);
        const char *name = plait_yaml_text(key);
        struct plait_gpu_type named;
        struct plait_error why;
        struct site site;

        if (plait_gpu_type_find(name ? name : "", &named, &why) < 0)
            return plait_yaml_errorf(yaml, key, err, "%s", why.text);
        to_site(strcmp(name, type->name) == 0 ? type : &named, &site);
        if (plait_yaml_read(yaml, value, name, site_fields,
                            sizeof(site_fields) / sizeof(site_fields[0]), &site,
                            err) < 0)
            return -1;
        if (strcmp(name, type->name) == 0)
            from_site(&site, &changed);
    }
    *type = changed;
    return 0;
}

int plait_gpu_type_override(struct plait_gpu_type *type, const char *path,
                            struct plait_error *err)
{
    struct plait_yaml *yaml = plait_yaml_create(path, err);
    yaml_node_t *root;
    int rc;

    if (!yaml)
        return -1;
    root = plait_yaml_root(yaml);
    if (root && root->type != YAML_MAPPING_NODE)
        rc = plait_yaml_errorf(yaml, root, err,
                               "want GPU types, as in h100: {nic_gbps: 46}");
    else
        rc = root ? override(type, yaml, root, err) : 0;
    plait_yaml_destroy(yaml);
    return rc;
}
