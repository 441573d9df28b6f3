/* SPDX-License-Identifier: Apache-2.0 */
/* Judges what plait-probe has timed: which GPUs are too slow, or cannot be
 * used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/start/preflight.h"

/* The bounds, as shares of the median of the job's GPUs. Sound GPUs of a kind
 * differ by a tenth. */
#define PRODUCT_LEAST 0.75
#define RING_LEAST 0.5

typedef double figure(const struct plait_preflight_report *report, int which);

/* Figures: 0 where nothing was timed. */
static double product_of(const struct plait_preflight_report *r, int which)
{
    (void)which;
    return r->gpu.product;
}

static double inner_ring_of(const struct plait_preflight_report *r, int which)
{
    return r->gpu.wide >> which & 1 ? 0 : r->gpu.ring[which];
}

static double wide_ring_of(const struct plait_preflight_report *r, int which)
{
    return r->gpu.wide >> which & 1 ? r->gpu.ring[which] : 0;
}

static double median_of(const struct plait_preflight_report *reports, int n,
                        figure *of, int which)
{
    double *values = malloc((size_t)n * sizeof(*values)), median;
    int count = 0;

    for (int i = 0; values && i < n; i++) {
        values[count] = of(&reports[i], which);
        count += values[count] > 0;
    }
    median = plait_preflight_median(values, count);
    free(values);
    return median;
}

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

/* Name the slowest GPU of each node, and say how many others are slow. */
static void judge_products(const struct plait_preflight_report *reports, int n,
                           struct plait_preflight_node *nodes)
{
    double median = median_of(reports, n, product_of, 0);

    for (int i = 0; i < n; i++) {
        const struct plait_preflight_report *r = &reports[i];
        struct plait_preflight_node *node = &nodes[r->node_rank];
        char text[192], more[48] = "";
        int slow = 0;

        if (!(r->gpu.product > 0) || r->gpu.product != node->gpu)
            continue;
        for (int k = 0; k < n; k++)
            slow += reports[k].node_rank == r->node_rank &&
                    reports[k].gpu.product > 0 &&
                    reports[k].gpu.product < PRODUCT_LEAST * median;
        if (!slow)
            continue;
        if (slow > 1)
            snprintf(more, sizeof(more), " and %d more of its GPUs", slow - 1);
        snprintf(text, sizeof(text),
                 "GPU %s%s: a product at %.2f of the median (%.4g of %.4g "
                 "TFLOP/s)",
                 r->gpu.busid, more, r->gpu.product / median,
                 r->gpu.product / 1e12, median / 1e12);
        if (!strstr(node->faults, ": a product at "))
            add_fault(node, text);
    }
}

/* ---- rings ---- */

/* A slow ring in a node is the node's fault. Of one over several nodes it is
 * not known whose: that is a note. */
static void judge_ring(const struct plait_preflight_report *reports, int n,
                       int which, int wide, struct plait_preflight_node *nodes)
{
    figure *of = wide ? wide_ring_of : inner_ring_of;
    double median = median_of(reports, n, of, which);

    for (int i = 0; i < n; i++) {
        struct plait_preflight_node *node = &nodes[reports[i].node_rank];
        double rate = of(&reports[i], which);
        char text[PLAIT_PREFLIGHT_NOTE];

        if (!(rate > 0) || rate != node->ring[which] ||
            !(rate < RING_LEAST * median))
            continue;
        snprintf(text, sizeof(text),
                 "%s %s ring %sis at %.2f of the median (%.4g of %.4g GB/s)",
                 wide ? "a" : "its", plait_preflight_rings[which],
                 wide ? "over several nodes " : "", rate / median, rate / 1e9,
                 median / 1e9);
        if (wide)
            add_note(node, text);
        else
            add_fault(node, text);
    }
}

void plait_preflight_judge_gpus(const struct plait_preflight_report *reports,
                                int n, struct plait_preflight_node *nodes)
{
    int work = any_timed(reports, n);

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
        judge_ring(reports, n, k, 0, nodes);
        judge_ring(reports, n, k, 1, nodes);
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
