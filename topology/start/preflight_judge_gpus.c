/* SPDX-License-Identifier: Apache-2.0 */
/* Judges what plait-probe has timed: which GPUs are too slow, or cannot be
 * used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/start/preflight.h"

/* The bounds, as shares of the median of the job's GPUs of a type. Sound ones
 * differ by a tenth. */
#define PRODUCT_LEAST 0.75
#define RING_LEAST 0.5

static void add_note(struct plait_preflight_node *node, const char *note)
{
    plait_preflight_add_words(node->notes, sizeof(node->notes), note);
}

static void add_fault(struct plait_preflight_node *node, const char *fault)
{
    plait_preflight_add_words(node->faults, sizeof(node->faults), fault);
}

/* ---- products ---- */

static int any_timed(const struct plait_preflight_report *reports, int n)
{
    for (int i = 0; i < n; i++)
        if (reports[i].gpu.state == PLAIT_PREFLIGHT_GPU_TIMED)
            return 1;
    return 0;
}

/* What CUDA refuses everywhere is the driver's or the build's fault, and what
 * it refuses one task is its GPU's. */
static void judge_state(const struct plait_preflight_report *r, int others_work,
                        struct plait_preflight_node *node)
{
    char text[sizeof(r->gpu.note) + 96];

    switch (r->gpu.state) {
    case PLAIT_PREFLIGHT_GPU_STUCK:
        snprintf(text, sizeof(text), "GPU %s: it has not ended a product",
                 r->gpu.busid);
        add_fault(node, text);
        break;
    case PLAIT_PREFLIGHT_GPU_UNUSABLE:
        snprintf(text, sizeof(text), "GPU %s: CUDA cannot use it: %s",
                 r->gpu.busid, r->gpu.note);
        if (others_work)
            add_fault(node, text);
        else
            add_note(node, text);
        break;
    default:
        add_note(node, r->gpu.note);
    }
}

/* For each GPU, its share of the median of those of its type, or INFINITY. */
static void find_shares(const struct plait_preflight_report *reports, int n,
                        double *shares, double *values)
{
    for (int i = 0; i < n; i++)
        shares[i] = reports[i].gpu.product > 0 ? 0 : INFINITY;
    for (int i = 0; i < n; i++) {
        int count = 0, type = reports[i].gpu.type;
        double median;

        if (shares[i] > 0)
            continue;
        for (int k = i; k < n; k++)
            if (reports[k].gpu.type == type && reports[k].gpu.product > 0)
                values[count++] = reports[k].gpu.product;
        median = plait_preflight_median(values, count);
        for (int k = i; k < n; k++)
            if (reports[k].gpu.type == type && reports[k].gpu.product > 0)
                shares[k] = reports[k].gpu.product / median;
    }
}

/* Of the node's slowest GPU, of which `more` are slow as well. */
static void add_slow(const struct plait_preflight_gpu *gpu, double share,
                     int more, struct plait_preflight_node *node)
{
    char text[192], others[48] = "";

    if (more)
        snprintf(others, sizeof(others), " and %d more of its GPUs", more);
    snprintf(text, sizeof(text),
             "GPU %s%s: a product at %.2f of the median (%.4g of %.4g "
             "TFLOP/s)",
             gpu->busid, others, share, gpu->product / 1e12,
             gpu->product / share / 1e12);
    add_fault(node, text);
}

/* Name the slowest GPU of each node, and say how many others are slow. */
static void judge_products(const struct plait_preflight_report *reports, int n,
                           struct plait_preflight_node *nodes)
{
    double *shares = calloc((size_t)n, 2 * sizeof(*shares));

    if (!shares)
        return;
    find_shares(reports, n, shares, shares + n);
    for (int i = 0; i < n; i++) {
        int node = reports[i].node_rank, slow = 0, slowest = i;

        if (!(shares[i] < PRODUCT_LEAST))
            continue;
        for (int k = 0; k < n; k++) {
            if (reports[k].node_rank != node || !(shares[k] < PRODUCT_LEAST))
                continue;
            slow++;
            if (shares[k] < shares[slowest] ||
                (k < slowest && !(shares[slowest] < shares[k])))
                slowest = k;
        }
        if (slowest == i)
            add_slow(&reports[i].gpu, shares[i], slow - 1, &nodes[node]);
    }
    free(shares);
}

/* ---- rings ---- */

static int is_wide(const struct plait_preflight_report *r, int which)
{
    return r->gpu.wide >> which & 1;
}

/* Groups of an axis may have links of different kinds in each node: its slowest
 * ones are compared with those of the other nodes. */
static void judge_inner_ring(const struct plait_preflight_report *reports,
                             int n, int which,
                             struct plait_preflight_node *nodes)
{
    double *least = calloc((size_t)n, 2 * sizeof(*least)), median;
    double *values = least ? least + n : NULL;
    int count = 0;

    for (int i = 0; least && i < n; i++) {
        double rate = reports[i].gpu.ring[which];
        double *of = &least[reports[i].node_rank];

        if (rate > 0 && !is_wide(&reports[i], which) &&
            (!(*of > 0) || rate < *of))
            *of = rate;
    }
    for (int i = 0; least && i < n; i++)
        if (least[i] > 0)
            values[count++] = least[i];
    median = plait_preflight_median(values, count);
    for (int i = 0; count > 1 && i < n; i++) {
        char text[PLAIT_PREFLIGHT_NOTE];

        if (!(least[i] > 0) || !(least[i] < RING_LEAST * median))
            continue;
        snprintf(text, sizeof(text),
                 "its %s ring is at %.2f of the median (%.4g of %.4g GB/s)",
                 plait_preflight_rings[which], least[i] / median,
                 least[i] / 1e9, median / 1e9);
        add_fault(&nodes[i], text);
    }
    free(least);
}

/* Of a slow ring over several nodes it is not known which is the cause. */
static void judge_wide_ring(const struct plait_preflight_report *reports, int n,
                            int which, struct plait_preflight_node *nodes)
{
    double *values = calloc((size_t)n, sizeof(*values)), median;
    int count = 0;

    for (int i = 0; values && i < n; i++)
        if (reports[i].gpu.ring[which] > 0 && is_wide(&reports[i], which))
            values[count++] = reports[i].gpu.ring[which];
    median = plait_preflight_median(values, count);
    free(values);
    for (int i = 0; count && i < n; i++) {
        struct plait_preflight_node *node = &nodes[reports[i].node_rank];
        double rate = reports[i].gpu.ring[which];
        char text[PLAIT_PREFLIGHT_NOTE];

        if (!(rate > 0) || !is_wide(&reports[i], which) ||
            rate != node->ring[which] || !(rate < RING_LEAST * median))
            continue;
        snprintf(text, sizeof(text),
                 "a %s ring over several nodes is at %.2f of the median (%.4g "
                 "of %.4g GB/s)",
                 plait_preflight_rings[which], rate / median, rate / 1e9,
                 median / 1e9);
        add_note(node, text);
    }
}

void plait_preflight_judge_gpus(const struct plait_preflight_report *reports,
                                int n, struct plait_preflight_node *nodes)
{
    int work = any_timed(reports, n);

    if (n < 1)
        return;
    for (int i = 0; i < n; i++) {
        const struct plait_preflight_gpu *gpu = &reports[i].gpu;
        struct plait_preflight_node *node = &nodes[reports[i].node_rank];

        if (gpu->product > 0)
            node->gpu = fmin(node->gpu, gpu->product);
        for (int k = 0; k < PLAIT_PREFLIGHT_RINGS; k++)
            if (gpu->ring[k] > 0)
                node->ring[k] = fmin(node->ring[k], gpu->ring[k]);
        judge_state(&reports[i], work, node);
    }
    judge_products(reports, n, nodes);
    for (int k = 0; k < PLAIT_PREFLIGHT_RINGS; k++) {
        judge_inner_ring(reports, n, k, nodes);
        judge_wide_ring(reports, n, k, nodes);
    }
}

void plait_preflight_list_notes(const struct plait_preflight_node *nodes, int n,
                                char *text, size_t size)
{
    struct plait_text out = {text, size, 0};
    int more = 0;

    *text = '\0';
    for (int i = 0; i < n; i++) {
        if (!nodes[i].notes[0])
            continue;
        if (!out.used)
            plait_text_add(&out, "%s: %s", nodes[i].name, nodes[i].notes);
        else
            more++;
    }
    if (more)
        plait_text_add(&out, "; and of %d more node%s", more,
                       more == 1 ? "" : "s");
}
