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
#define LINK_SCALE 1e6 /* the unit in which it is printed */
/* Other processes per core of a task. */
#define OTHERS_MOST 0.75

/* Of one node; NAN: not measured. */
struct figures {
    const char *name;
    double product, memory; /* of its slowest rank */
    double sends, receives; /* to and from its best neighbour */
    double others;
    const char *other;
};

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

static void gather(const struct plait_preflight_report *reports, int n,
                   struct figures *figures)
{
    for (int i = 0; i < n; i++) {
        const struct plait_preflight_report *r = &reports[i];
        struct figures *f = &figures[r->node_rank];

        f->name = r->node;
        f->product = fmin(f->product, r->product);
        f->memory = fmin(f->memory, r->memory);
        if (!(r->others <= f->others)) {
            f->others = r->others;
            f->other = r->other;
        }
        for (int k = 0; k < r->nedges; k++) {
            struct figures *to = &figures[reports[r->edge[k].to].node_rank];

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

/* Of an even number of values the upper median; NAN: none was measured. */
static double median(const struct figures *figures, int n, size_t offset)
{
    double *values = malloc((size_t)n * sizeof(*values)), result = NAN;
    int count = 0;

    for (int i = 0; values && i < n; i++) {
        memcpy(&values[count], (const char *)&figures[i] + offset,
               sizeof(double));
        count += !isnan(values[count]);
    }
    if (count) {
        qsort(values, (size_t)count, sizeof(*values), compare);
        result = values[count / 2];
    }
    free(values);
    return result;
}

static const struct bound {
    const char *what, *unit;
    size_t offset;
    double least, scale;
} bounds[] = {
    {"its cores are", "GFLOP/s", offsetof(struct figures, product),
     PRODUCT_LEAST, 1e9},
    {"its memory is", "GB/s", offsetof(struct figures, memory), MEMORY_LEAST,
     1e9},
    {"its link sends", "MB/s", offsetof(struct figures, sends), LINK_LEAST,
     LINK_SCALE},
    {"its link receives", "MB/s", offsetof(struct figures, receives),
     LINK_LEAST, LINK_SCALE},
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

/* 1: the node is below a bound, and `text` says so: "NODE: REASON, REASON". */
static int judge(const struct figures *f, const double *medians,
                 const struct plait_preflight_bound *plan,
                 struct plait_text *text)
{
    int found = 0;

    for (int i = 0; i < NBOUNDS; i++) {
        double value, whole;
        const char *of;

        memcpy(&value, (const char *)f + bounds[i].offset, sizeof(value));
        whole = find_least(&bounds[i], medians[i], plan, value, &of);
        if (isnan(value) || !(whole > 0))
            continue;
        plait_text_add(text, "%s%s%s at %.2f of the %s (%.4g of %.4g %s)",
                       found ? "" : f->name, found ? ", " : ": ",
                       bounds[i].what, value / whole, of,
                       value / bounds[i].scale, whole / bounds[i].scale,
                       bounds[i].unit);
        found = 1;
    }
    if (f->others >= OTHERS_MOST) {
        plait_text_add(
            text, "%s%sother processes want its cores (%.1f each; %s)",
            found ? "" : f->name, found ? ", " : ": ", f->others, f->other);
        found = 1;
    }
    return found;
}

/* Add a node's entry. 0: there is no room left for it. */
static bool add_entry(struct plait_text *out, const char *entry)
{
    size_t before = out->used;

    plait_text_add(out, "%s%s", before ? "; " : "", entry);
    return out->used > before;
}

int plait_preflight_judge(const struct plait_preflight_report *reports, int n,
                          const struct plait_preflight_bound *bound, char *text,
                          size_t size, int *below)
{
    static const char more[] = "; ...";
    struct plait_text out = {text, size - sizeof(more), 0};
    double medians[NBOUNDS];
    struct figures *figures;
    int nodes = 0, bad = 0, cut = 0;

    for (int i = 0; i < n; i++)
        nodes =
            reports[i].node_rank >= nodes ? reports[i].node_rank + 1 : nodes;
    figures = malloc((size_t)nodes * sizeof(*figures));
    *text = '\0';
    for (int i = 0; below && i < nodes; i++)
        below[i] = 0;
    if (!figures)
        return 0;
    for (int i = 0; i < nodes; i++)
        figures[i] = (struct figures){"", NAN, NAN, NAN, NAN, NAN, ""};
    gather(reports, n, figures);
    for (int i = 0; i < NBOUNDS; i++)
        medians[i] = median(figures, nodes, bounds[i].offset);
    for (int i = 0; i < nodes; i++) {
        char entry[512] = "";
        struct plait_text one = {entry, sizeof(entry), 0};
        int found = judge(&figures[i], medians, bound, &one);

        if (below)
            below[i] = found;
        bad += found;
        cut = cut || (found && !add_entry(&out, entry));
    }
    out.size = size;
    if (cut)
        plait_text_add(&out, "%s", more);
    free(figures);
    return bad;
}
