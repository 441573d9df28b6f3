/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of GPU types in a site file: their names, units and bounds. */
#include "topology/job/site_figures.h"

#include <math.h>
#include <string.h>

#define GB 1e9
#define US 1e-6
#define AT(member) offsetof(struct plait_gpu_type, member)

static const char peak[] = "the peak of dense products in TFLOP/s (10^12), "
                           "without sparsity";
static const char gigabytes[] = "in gigabytes (10^9 bytes)";
static const char memory_rate[] = "in gigabytes per second";
static const char link_rate[] =
    "of one GPU in one direction, in gigabytes (not gigabits) per second: half "
    "of what a data sheet says of NVLink";
static const char nic_rate[] =
    "the share of one GPU in one direction, in gigabytes (not gigabits) per "
    "second: a NIC of 400 Gb/s for each GPU is 50";
static const char micro[] = "in microseconds";

/* How often a figure may exceed the table's: newer networks are twice as fast,
 * 8 times is bits for bytes. */
const struct plait_site_figure plait_site_figures[PLAIT_SITE_FIGURES] = {
    {"tflops", AT(flops16), 1e12, 1e-3, 1e6, 7, peak},
    {"tflops_fp32", AT(flops32), 1e12, 1e-3, 1e6, 20, peak},
    {"tflops_tf32", AT(flops_tf32), 1e12, 1e-3, 1e6, 10, peak},
    {"tflops_fp8", AT(flops8), 1e12, 1e-3, 1e6, 20, peak},
    {"memory_gb", AT(memory), GB, 1e-3, 1e6, 12, gigabytes},
    {"memory_gbytes_s", AT(memory_bw), GB, 1e-3, 1e6, 12, memory_rate},
    {"link_gbytes_s", AT(link_bw), GB, 1e-6, 1e6, 2.2, link_rate},
    {"link_us", AT(link_alpha), US, 0, 1e6, 500, micro},
    {"host_gbytes_s", AT(host_bw), GB, 1e-6, 1e6, 10, memory_rate},
    {"nic_gbytes_s", AT(nic_bw), GB, 1e-6, 1e6, 2.5, nic_rate},
    {"nic_us", AT(nic_alpha), US, 0, 1e6, 500, micro},
    {"hop_us", AT(hop_alpha), US, 0, 1e6, 500, micro},
    {"oversubscription", AT(oversubscription), 1, 1e-3, 1e3, 0, NULL},
    {"crowding", AT(crowding), 1, 0, 10, 0, NULL},
    {"stragglers", AT(stragglers), 1, 0, 10, 0, NULL},
    {"matmul", AT(matmul), 1, 1e-3, 1, 0, NULL},
    {"matmul_fp8", AT(matmul8), 1, 1e-3, 1, 0, NULL},
    {"attention", AT(attention), 1, 1e-3, 1, 0, NULL},
    {"stream", AT(stream), 1, 1e-3, 10, 0, NULL},
    {"layer_us", AT(layer_s), US, 0, 1e6, 500, micro},
    {"score_bytes", AT(score_bytes), 1, 0, 100, 0, NULL},
    {"headroom_gb", AT(headroom), GB, 0, 1e6, 0, NULL},
    {"host_memory_gb", AT(host_memory), GB, 0, 1e6, 100, gigabytes},
    {"leaf_gpus", AT(leaf_gpus), 1, 0, 1e6, 0, NULL},
    {"failure_hours", AT(failure_hours), 1, 1, 1e9, 0, NULL},
    {"cores", AT(cores), 1, 1, 1e6, 0, NULL},
    {"threads", AT(threads), 1, 1, 1e6, 0, NULL},
    /* older names, whose unit was read as gigabits */
    {"memory_gbps", AT(memory_bw), GB, 1e-3, 1e6, 12, memory_rate},
    {"link_gbps", AT(link_bw), GB, 1e-6, 1e6, 2.2, link_rate},
    {"host_gbps", AT(host_bw), GB, 1e-6, 1e6, 10, memory_rate},
    {"nic_gbps", AT(nic_bw), GB, 1e-6, 1e6, 2.5, nic_rate},
};

static double figure_of(const struct plait_gpu_type *type, int k)
{
    double value;

    memcpy(&value, (const char *)type + plait_site_figures[k].offset,
           sizeof(value));
    return value;
}

/* The other name of figure k that stands before it; -1: none. */
static int first_name(int k)
{
    for (int i = 0; i < k; i++)
        if (plait_site_figures[i].offset == plait_site_figures[k].offset)
            return i;
    return -1;
}

void plait_site_apply_figures(const double value[PLAIT_SITE_FIGURES],
                              struct plait_gpu_type *type)
{
    for (int k = 0; k < PLAIT_SITE_FIGURES; k++) {
        double scaled = value[k] * plait_site_figures[k].unit;

        if (isnan(scaled))
            continue;
        memcpy((char *)type + plait_site_figures[k].offset, &scaled,
               sizeof(scaled));
        type->uplinks_known |=
            plait_site_figures[k].offset == AT(oversubscription);
        if (plait_site_figures[k].offset == AT(matmul))
            type->fitted = true; /* to runs of the site's own */
    }
}

static int check_figure(struct plait_yaml *yaml, const yaml_node_t *entry,
                        const double value[PLAIT_SITE_FIGURES],
                        const struct plait_gpu_type *base, int k,
                        struct plait_error *err)
{
    const struct plait_site_figure *f = &plait_site_figures[k];
    double usual = figure_of(base, k) / f->unit;
    const yaml_node_t *at = plait_yaml_get(yaml, entry, f->name);
    int first = first_name(k);

    if (isnan(value[k]) || !at)
        return 0;
    if (first >= 0 && !isnan(value[first]))
        return plait_yaml_errorf(
            yaml, at, err,
            "%s is the older name of %s; only one of them may be given",
            f->name, plait_site_figures[first].name);
    if (f->times <= 0 || usual <= 0 || base->cores > 0 ||
        value[k] <= f->times * usual)
        return 0;
    return plait_yaml_errorf(
        yaml, at, err,
        "%s: %g is %.0f times the %g that %s has; the figure is %s", f->name,
        value[k], value[k] / usual, usual, base->name, f->meant);
}

int plait_site_check_figures(struct plait_yaml *yaml, const yaml_node_t *entry,
                             const double value[PLAIT_SITE_FIGURES],
                             const struct plait_gpu_type *base,
                             struct plait_error *err)
{
    for (int k = 0; k < PLAIT_SITE_FIGURES; k++)
        if (check_figure(yaml, entry, value, base, k, err) < 0)
            return -1;
    return 0;
}

void plait_site_print_figures(FILE *out, const struct plait_gpu_type *type,
                              const struct plait_gpu_type *base)
{
    for (int k = 0; k < PLAIT_SITE_FIGURES; k++) {
        double mine = figure_of(type, k);

        if (first_name(k) < 0 && mine != figure_of(base, k))
            fprintf(out, "    %s: %.9g\n", plait_site_figures[k].name,
                    mine / plait_site_figures[k].unit);
    }
}
