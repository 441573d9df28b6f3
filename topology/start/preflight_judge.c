/* SPDX-License-Identifier: Apache-2.0 */
/* Judges what the preflight measured: which nodes are too slow, and in what. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/text.h"
#include "topology/start/preflight.h"

/* The bounds, as shares of the job's median: what is below them is broken or
 * misconfigured, not merely slower than its neighbours. */
#define PRODUCT_LEAST 0.5
#define MEMORY_LEAST 0.4
#define LINK_LEAST 0.4
#define NIC_LEAST 0.9
#define LINK_SCALE 1e6 /* the unit in which it is printed */
/* Other processes per core of a task. */
#define OTHERS_MOST 0.75

void plait_preflight_keep_calmest(struct plait_preflight_report *reports, int n,
                                  struct plait_preflight_calm *calm)
{
    for (int i = 0; i < n; i++)
        calm[reports[i].node_rank].now = 0;
    for (int i = 0; i < n; i++) {
        struct plait_preflight_calm *c = &calm[reports[i].node_rank];

        c->now = fmax(c->now, reports[i].others);
    }
    for (int i = 0; i < n; i++) {
        struct plait_preflight_calm *c = &calm[reports[i].node_rank];

        c->least = fmin(c->least, c->now);
        reports[i].others = fmin(reports[i].others, c->least);
    }
}

/* Tasks of a node may share a NIC, and then say the same of it. */
void plait_preflight_add_words(char *list, size_t size, const char *words)
{
    size_t used = strlen(list);

    if (*words && !strstr(list, words))
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", words);
}

static void gather(const struct plait_preflight_report *reports, int n,
                   struct plait_preflight_node *nodes)
{
    for (int i = 0; i < n; i++) {
        const struct plait_preflight_report *r = &reports[i];
        struct plait_preflight_node *f = &nodes[r->node_rank];

        f->name = r->node;
        f->product = fmin(f->product, r->product);
        f->memory = fmin(f->memory, r->memory);
        if (r->nic > 0)
            f->nic = fmin(f->nic, r->nic);
        if (!(r->others <= f->others)) {
            f->others = r->others;
            f->other = r->other;
        }
        plait_preflight_add_words(f->faults, sizeof(f->faults), r->faults);
        for (int k = 0; k < r->nedges; k++) {
            struct plait_preflight_node *to =
                &nodes[reports[r->edge[k].to].node_rank];

            f->sends = fmax(f->sends, r->edge[k].rate);
            to->receives = fmax(to->receives, r->edge[k].rate);
        }
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double plait_preflight_median(double *values, int n)
{
    if (n == 0)
        return NAN;
    qsort(values, (size_t)n, sizeof(*values), compare);
    return values[n / 2];
}

static double median(const struct plait_preflight_node *figures, int n,
                     size_t offset)
{
    double *values = malloc((size_t)n * sizeof(*values)), result;
    int count = 0;

    for (int i = 0; values && i < n; i++) {
        memcpy(&values[count], (const char *)&figures[i] + offset,
               sizeof(double));
        count += !isnan(values[count]);
    }
    result = plait_preflight_median(values, count);
    free(values);
    return result;
}

static const struct bound {
    const char *what, *unit;
    size_t offset;
    double least, scale;
} bounds[] = {
    {"its cores are", "GFLOP/s", offsetof(struct plait_preflight_node, product),
     PRODUCT_LEAST, 1e9},
    {"its memory is", "GB/s", offsetof(struct plait_preflight_node, memory),
     MEMORY_LEAST, 1e9},
    {"its NIC is", "Gb/s", offsetof(struct plait_preflight_node, nic),
     NIC_LEAST, 1e9 / 8},
    {"its link sends", "MB/s", offsetof(struct plait_preflight_node, sends),
     LINK_LEAST, LINK_SCALE},
    {"its link receives", "MB/s",
     offsetof(struct plait_preflight_node, receives), LINK_LEAST, LINK_SCALE},
};
enum { NBOUNDS = (int)(sizeof(bounds) / sizeof(bounds[0])) };

struct plait_preflight_bound
plait_preflight_bound(const struct plait_site *site)
{
    struct plait_preflight_bound bound = {0, 0};

    if (site && site->preflight.link > 0) {
        const struct plait_gpu_type *type = &site->gpu_types[site->gpu_type];

        /* The rate behind the narrowest switches that a link may have to
         * pass. */
        bound.link = type->nic_bw / fmax(type->oversubscription, 1);
        bound.least = site->preflight.link;
    }
    return bound;
}

/* Returns what `value` is compared with if it is too low: the median, or the
 * rate that the plan assumes; *of is its name. 0: it is high enough. */
static double find_least(const struct bound *b, double median,
                         const struct plait_preflight_bound *plan, double value,
                         const char **of)
{
    int is_link = b->scale == LINK_SCALE;

    *of = "median";
    if (value < b->least * median)
        return median;
    *of = "plan";
    return is_link && value < plan->least * plan->link ? plan->link : 0;
}

/* Sets node->why and node->slow. */
static void judge(struct plait_preflight_node *node, const double *medians,
                  const struct plait_preflight_bound *plan)
{
    struct plait_text why = {node->why, sizeof(node->why), 0};

    plait_text_add(&why, "%s", node->faults);
    for (int i = 0; i < NBOUNDS; i++) {
        double value, whole;
        const char *of;

        memcpy(&value, (const char *)node + bounds[i].offset, sizeof(value));
        whole = find_least(&bounds[i], medians[i], plan, value, &of);
        if (isnan(value) || !(whole > 0))
            continue;
        plait_text_add(&why, "%s%s at %.2f of the %s (%.4g of %.4g %s)",
                       why.used ? ", " : "", bounds[i].what, value / whole, of,
                       value / bounds[i].scale, whole / bounds[i].scale,
                       bounds[i].unit);
        node->slow = true;
    }
    if (node->others >= OTHERS_MOST) {
        plait_text_add(&why, "%sother processes want its cores (%.1f each; %s)",
                       why.used ? ", " : "", node->others, node->other);
        node->slow = true;
    }
}

int plait_preflight_judge_nodes(const struct plait_preflight_report *reports,
                                int n,
                                const struct plait_preflight_bound *bound,
                                struct plait_preflight_node *nodes)
{
    double medians[NBOUNDS];
    int count = 0;

    for (int i = 0; i < n; i++)
        count =
            reports[i].node_rank >= count ? reports[i].node_rank + 1 : count;
    for (int i = 0; i < count; i++)
        nodes[i] = (struct plait_preflight_node){
            .name = "",
            .product = NAN,
            .memory = NAN,
            .nic = NAN,
            .sends = NAN,
            .receives = NAN,
            .gpu = NAN,
            .ring = {NAN, NAN, NAN, NAN},
            .others = NAN,
            .other = "",
        };
    gather(reports, n, nodes);
    plait_preflight_judge_gpus(reports, n, nodes);
    for (int i = 0; i < NBOUNDS; i++)
        medians[i] = median(nodes, count, bounds[i].offset);
    for (int i = 0; i < count; i++)
        judge(&nodes[i], medians, bound);
    return count;
}

int plait_preflight_list(const struct plait_preflight_node *nodes, int n,
                         char *text, size_t size)
{
    static const char more[] = "; ...";
    struct plait_text out = {text, size - sizeof(more), 0};
    int bad = 0;
    bool cut = false;

    *text = '\0';
    for (int i = 0; i < n; i++) {
        size_t before = out.used;

        if (!nodes[i].why[0])
            continue;
        bad++;
        plait_text_add(&out, "%s%s: %s", before ? "; " : "", nodes[i].name,
                       nodes[i].why);
        cut = cut || out.used == before;
    }
    out.size = size;
    if (cut)
        plait_text_add(&out, "%s", more);
    return bad;
}

int plait_preflight_judge(const struct plait_preflight_report *reports, int n,
                          const struct plait_preflight_bound *bound, char *text,
                          size_t size)
{
    struct plait_preflight_node *nodes = malloc((size_t)n * sizeof(*nodes));
    int bad = 0;

    *text = '\0';
    if (nodes)
        bad = plait_preflight_list(
            nodes, plait_preflight_judge_nodes(reports, n, bound, nodes), text,
            size);
    free(nodes);
    return bad;
}
