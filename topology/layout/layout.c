/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/layout/layout.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SIZE_MOST 1048576

const char *const plait_axis_names[PLAIT_NAXES] = {"tp", "cp", "ep", "dp",
                                                   "pp"};

/* The axes whose product is the world size. The first one that may be is
 * inferred. */
static const enum plait_axis factors[] = {PLAIT_DP, PLAIT_PP, PLAIT_CP,
                                          PLAIT_TP};
enum { NFACTORS = sizeof(factors) / sizeof(factors[0]) };

/* One reading of a rank as mixed-radix digits. A layout has two: the dense
 * one (ep is 1) and the expert one (cp is folded into dp, ep taken out). */
struct digits {
    int size[PLAIT_NAXES];
    int stride[PLAIT_NAXES];
};

static void digits_init(struct digits *d, const struct plait_layout *layout,
                        int expert)
{
    int stride = 1;

    memcpy(d->size, layout->size, sizeof(d->size));
    d->size[PLAIT_EP] = 1;
    if (expert) {
        d->size[PLAIT_CP] = 1;
        d->size[PLAIT_EP] = layout->size[PLAIT_EP];
        d->size[PLAIT_DP] = layout->size[PLAIT_CP] * layout->size[PLAIT_DP] /
                            layout->size[PLAIT_EP];
    }
    for (int i = 0; i < PLAIT_NAXES; i++) {
        enum plait_axis axis = layout->order[i];

        d->stride[axis] = stride;
        stride *= d->size[axis];
    }
}

static int digit(const struct digits *d, enum plait_axis axis, int rank)
{
    return rank / d->stride[axis] % d->size[axis];
}

void plait_layout_init(struct plait_layout *layout)
{
    for (int i = 0; i < PLAIT_NAXES; i++) {
        layout->size[i] = 1;
        layout->order[i] = (enum plait_axis)i;
    }
    layout->unnamed = 0;
}

int plait_layout_parse_size(const char *what, const char *text, int *size,
                            struct plait_error *err)
{
    long value = 0;
    const char *p;

    if (strcmp(text, "auto") == 0) {
        *size = PLAIT_AUTO;
        return 0;
    }
    for (p = text; *p >= '0' && *p <= '9' && value <= SIZE_MOST; p++)
        value = value * 10 + (*p - '0');
    if (p == text || *p || value < 1 || value > SIZE_MOST) {
        errno = EINVAL;
        return plait_errorf(err,
                            "%s=%.40s must be a whole number from 1 to %d, or "
                            "\"auto\"",
                            what, text, SIZE_MOST);
    }
    *size = (int)value;
    return 0;
}

void plait_layout_format_sizes(const int size[PLAIT_NAXES], char *buf, size_t n)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < PLAIT_NAXES; i++) {
        if (size[i] <= 1)
            continue;
        used += (size_t)snprintf(buf + used, n - used, "%s--%s=%d",
                                 used ? " " : "", plait_axis_names[i], size[i]);
        if (used >= n)
            return;
    }
    if (used == 0)
        snprintf(buf, n, "--dp=1");
}

/* How far `size` is from what was wanted, in doublings; an inferred size
 * costs nothing, and dp is given up more easily than tp. */
static double apart(const int wanted[PLAIT_NAXES], const int size[PLAIT_NAXES])
{
    double sum = 0;

    for (int i = 0; i < NFACTORS; i++) {
        enum plait_axis axis = factors[i];

        if (wanted[axis] != PLAIT_AUTO)
            sum +=
                (1 + 0.01 * i) * fabs(log2((double)size[axis] / wanted[axis]));
    }
    return sum;
}

struct fits {
    bool any_ep; /* none fits with the ep that was asked for */
    double apart[2];
    int size[2][PLAIT_NAXES];
    int n;
};

static void fits_add(struct fits *fits, const int wanted[PLAIT_NAXES],
                     const int size[PLAIT_NAXES])
{
    double d = apart(wanted, size);
    int at = fits->n;

    if (!fits->any_ep && size[PLAIT_CP] * size[PLAIT_DP] % size[PLAIT_EP])
        return;
    while (at > 0 && d < fits->apart[at - 1])
        at--;
    if (at == 2)
        return;
    if (at == 0 && fits->n) {
        fits->apart[1] = fits->apart[0];
        memcpy(fits->size[1], fits->size[0], sizeof(fits->size[0]));
    }
    fits->apart[at] = d;
    memcpy(fits->size[at], size, sizeof(fits->size[at]));
    if (fits->n < 2)
        fits->n++;
}

static int common(int a, int b)
{
    return b ? common(b, a % b) : a;
}

/* The layouts of `world` whose tp groups stay within the `node` tasks of a node
 * (0: anything). */
static void find_fits(struct fits *fits, const int wanted[PLAIT_NAXES],
                      int world, int node)
{
    int size[PLAIT_NAXES], ep = wanted[PLAIT_EP];

    for (int tp = 1; tp <= world; tp++) {
        if (world % tp || (node && node % tp))
            continue;
        for (int cp = 1; cp <= world / tp; cp++) {
            if (world / tp % cp)
                continue;
            for (int pp = 1; pp <= world / tp / cp; pp++) {
                if (world / tp / cp % pp)
                    continue;
                size[PLAIT_TP] = tp;
                size[PLAIT_CP] = cp;
                size[PLAIT_PP] = pp;
                size[PLAIT_DP] = world / tp / cp / pp;
                size[PLAIT_EP] =
                    fits->any_ep ? common(cp * size[PLAIT_DP], ep) : ep;
                fits_add(fits, wanted, size);
            }
        }
    }
}

/* "; A or B would fit": the two layouts nearest to `wanted`. */
static void suggest_sizes(const int wanted[PLAIT_NAXES], int world, int node,
                          char *buf, size_t n)
{
    struct fits fits = {.n = 0};
    char one[2][96];

    find_fits(&fits, wanted, world, node);
    if (fits.n == 0) { /* tp 1 fits on any node */
        fits.any_ep = true;
        find_fits(&fits, wanted, world, node);
    }
    for (int i = 0; i < fits.n; i++)
        plait_layout_format_sizes(fits.size[i], one[i], sizeof(one[i]));
    if (fits.n == 2)
        snprintf(buf, n, "; %s or %s would fit",
                 one[fits.size[0][0] > fits.size[1][0]],
                 one[fits.size[0][0] <= fits.size[1][0]]);
    else
        snprintf(buf, n, "; %s would fit", one[0]);
}

int plait_layout_given(const struct plait_layout *layout)
{
    int64_t product = 1;

    for (int i = 0; i < NFACTORS && product < INT_MAX; i++)
        if (layout->size[factors[i]] != PLAIT_AUTO)
            product *= layout->size[factors[i]];
    return product < INT_MAX ? (int)product : INT_MAX;
}

int plait_layout_tasks(const int *tasks, int nnodes)
{
    int64_t sum = 0;

    for (int i = 0; i < nnodes; i++)
        sum += tasks[i];
    return sum < INT_MAX ? (int)sum : INT_MAX;
}

static int check_sizes(const struct plait_layout *layout, int world,
                       struct plait_error *err)
{
    int unknown = 0;

    errno = EINVAL;
    if (world < 1 || world > SIZE_MOST)
        return plait_errorf(err, "%d tasks: must be from 1 to %d", world,
                            SIZE_MOST);
    for (int i = 0; i < PLAIT_NAXES; i++) {
        if (layout->size[i] < 0 || layout->size[i] > SIZE_MOST)
            return plait_errorf(err, "--%s=%d must be from 1 to %d",
                                plait_axis_names[i], layout->size[i],
                                SIZE_MOST);
        unknown += i != PLAIT_EP && layout->size[i] == PLAIT_AUTO;
    }
    if (unknown > 1)
        return plait_errorf(err, "only one of --tp, --cp, --dp and --pp can "
                                 "be left to be inferred, unless --model=FILE "
                                 "says what they are for");
    return 0;
}

/* Are the tp and pp coordinates the same in both decompositions, with and
 * without experts? */
static int check_experts(const struct plait_layout *layout,
                         struct plait_error *err)
{
    int ep = layout->size[PLAIT_EP];
    int over = layout->size[PLAIT_CP] * layout->size[PLAIT_DP];
    struct digits dense, expert;
    int lower = ep;

    errno = EINVAL;
    if (over % ep) {
        while (over % lower)
            lower--;
        return plait_errorf(err,
                            "cp * dp = %d * %d is not divisible by --ep=%d; "
                            "--ep=%d would fit",
                            layout->size[PLAIT_CP], layout->size[PLAIT_DP], ep,
                            lower);
    }
    digits_init(&dense, layout, 0);
    digits_init(&expert, layout, 1);
    if (ep > 1 && ((layout->size[PLAIT_TP] > 1 &&
                    dense.stride[PLAIT_TP] != expert.stride[PLAIT_TP]) ||
                   (layout->size[PLAIT_PP] > 1 &&
                    dense.stride[PLAIT_PP] != expert.stride[PLAIT_PP])))
        return plait_errorf(err,
                            "with --ep=%d, cp, ep and dp must be "
                            "neighbours in --rank-order",
                            ep);
    return 0;
}

/* Infer the size of one axis: world / (all others). */
static int infer_size(struct plait_layout *layout, int world, int node,
                      struct plait_error *err)
{
    const int *wanted = layout->size;
    char asked[96], fit[256];
    int64_t product = 1;
    int unknown = -1;

    for (int i = 0; i < NFACTORS; i++) {
        if (wanted[factors[i]] == PLAIT_AUTO)
            unknown = (int)factors[i];
        else if (product <= world)
            product *= wanted[factors[i]];
    }
    if (unknown >= 0 ? world % product == 0 : product == world) {
        if (unknown >= 0)
            layout->size[unknown] = (int)(world / product);
        return 0;
    }
    errno = EINVAL;
    plait_layout_format_sizes(wanted, asked, sizeof(asked));
    suggest_sizes(wanted, world, node, fit, sizeof(fit));
    if (unknown >= 0)
        return plait_errorf(err, "%d task%s not divisible by %s%s", world,
                            world == 1 ? " is" : "s are", asked, fit);
    return plait_errorf(err, "%s do%s not make %d task%s%s", asked,
                        strchr(asked, ' ') ? "" : "es", world,
                        world == 1 ? "" : "s", fit);
}

static int check_unnamed(const struct plait_layout *layout,
                         struct plait_error *err)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (layout->unnamed & 1u << i && layout->size[i] > 1) {
            errno = EINVAL;
            return plait_errorf(err,
                                "--rank-order leaves out %s, whose size is %d; "
                                "only axes of size 1 may be left out",
                                plait_axis_names[i], layout->size[i]);
        }
    return 0;
}

int plait_layout_resolve(struct plait_layout *layout, int world,
                         struct plait_error *err)
{
    return plait_layout_resolve_on(layout, world, 0, err);
}

int plait_layout_resolve_on(struct plait_layout *layout, int world, int node,
                            struct plait_error *err)
{
    struct plait_layout resolved = *layout;

    if (check_sizes(layout, world, err) < 0)
        return -1;
    if (resolved.size[PLAIT_EP] == PLAIT_AUTO)
        resolved.size[PLAIT_EP] = 1;
    if (infer_size(&resolved, world, node, err) < 0 ||
        check_unnamed(&resolved, err) < 0 || check_experts(&resolved, err) < 0)
        return -1;
    *layout = resolved;
    return 0;
}

void plait_layout_leave_out(struct plait_layout *layout, unsigned given)
{
    for (int i = 0; i < NFACTORS; i++)
        if (layout->size[factors[i]] == PLAIT_AUTO)
            return;
    for (int i = 0; i < NFACTORS; i++)
        if (!(given >> factors[i] & 1)) {
            layout->size[factors[i]] = PLAIT_AUTO;
            return;
        }
}

int plait_layout_world(const struct plait_layout *layout)
{
    int world = 1;

    for (int i = 0; i < NFACTORS; i++)
        world *= layout->size[factors[i]];
    return world;
}

void plait_layout_coord(const struct plait_layout *layout, int rank,
                        struct plait_coord *coord)
{
    struct digits dense, expert;

    digits_init(&dense, layout, 0);
    for (int i = 0; i < PLAIT_NAXES; i++)
        coord->at[i] = digit(&dense, (enum plait_axis)i, rank);
    if (layout->size[PLAIT_EP] > 1) {
        digits_init(&expert, layout, 1);
        coord->at[PLAIT_EP] = digit(&expert, PLAIT_EP, rank);
    }
}

int plait_layout_rank(const struct plait_layout *layout,
                      const struct plait_coord *coord)
{
    struct digits dense;
    int rank = 0;

    digits_init(&dense, layout, 0);
    for (int i = 0; i < NFACTORS; i++)
        rank += coord->at[factors[i]] * dense.stride[factors[i]];
    return rank;
}

bool plait_layout_keeps_tp(const struct plait_layout *layout, int first, int n)
{
    for (int i = 0; i < n; i++) {
        struct plait_coord c;

        plait_layout_coord(layout, first + i, &c);
        c.at[PLAIT_TP] = 0;
        if (plait_layout_rank(layout, &c) < first)
            return false;
        c.at[PLAIT_TP] = layout->size[PLAIT_TP] - 1;
        if (plait_layout_rank(layout, &c) >= first + n)
            return false;
    }
    return true;
}

/* Which axes vary inside a group, as bits. */
static int group_axes(enum plait_group group)
{
    switch (group) {
    case PLAIT_GROUP_DP_CP:
        return 1 << PLAIT_DP | 1 << PLAIT_CP;
    case PLAIT_GROUP_EXPERT_DP:
        return 1 << PLAIT_DP;
    case PLAIT_GROUP_TP_PP:
        return 1 << PLAIT_TP | 1 << PLAIT_PP;
    default:
        return 1 << group;
    }
}

int plait_layout_group(const struct plait_layout *layout,
                       enum plait_group group, int rank, int *members)
{
    int expert, vary, n = 1;
    struct digits d;

    /* With ep = 1 every rank has all experts, and in the order may be another
     * axis between cp and dp, which the reading with experts would move. */
    if (group == PLAIT_GROUP_EXPERT_DP && layout->size[PLAIT_EP] == 1)
        group = PLAIT_GROUP_DP_CP;
    expert = group == PLAIT_GROUP_EP || group == PLAIT_GROUP_EXPERT_DP;
    vary = group_axes(group);
    digits_init(&d, layout, expert);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (vary & 1 << i) {
            rank -= digit(&d, (enum plait_axis)i, rank) * d.stride[i];
            n *= d.size[i];
        }
    if (!members)
        return n;
    /* Counting through the varying axes, fastest first, counts upward. */
    for (int k = 0; k < n; k++) {
        int left = k;

        members[k] = rank;
        for (int i = 0; i < PLAIT_NAXES; i++) {
            enum plait_axis axis = layout->order[i];

            if (vary & 1 << axis) {
                members[k] += left % d.size[axis] * d.stride[axis];
                left /= d.size[axis];
            }
        }
    }
    return n;
}
