/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/trace/profile.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MOST 96
/* Ended spans whose enclosing span has not ended yet. */
#define UNCLAIMED_MOST 4096

struct row {
    char track[32], name[32];
    int beside;
    uint64_t count;
    double seconds;
};

struct unclaimed {
    double start, seconds;
};

struct plait_profile {
    int nrows, nunclaimed;
    struct row row[ROWS_MOST];
    struct unclaimed unclaimed[UNCLAIMED_MOST];
};

struct plait_profile *plait_profile_create(void)
{
    return calloc(1, sizeof(struct plait_profile));
}

void plait_profile_destroy(struct plait_profile *p)
{
    free(p);
}

static struct row *row_of(struct plait_profile *p, const char *track,
                          const char *name, int beside)
{
    size_t n = strcspn(name, "0123456789");
    struct row *r;

    while (n > 0 && name[n - 1] == ' ')
        n--;
    if (n >= sizeof(r->name))
        n = sizeof(r->name) - 1;
    for (int i = 0; i < p->nrows; i++) {
        r = &p->row[i];
        if (r->beside == beside && strcmp(r->track, track) == 0 &&
            strlen(r->name) == n && strncmp(r->name, name, n) == 0)
            return r;
    }
    if (p->nrows == ROWS_MOST)
        return &p->row[ROWS_MOST - 1];
    r = &p->row[p->nrows++];
    snprintf(r->track, sizeof(r->track), "%s", track);
    memcpy(r->name, name, n);
    r->beside = beside;
    return r;
}

void plait_profile_span(struct plait_profile *p, const char *track,
                        const char *name, double start, double seconds)
{
    double inside = 0;
    struct row *r;

    if (!p)
        return;
    while (p->nunclaimed > 0 && p->unclaimed[p->nunclaimed - 1].start >= start)
        inside += p->unclaimed[--p->nunclaimed].seconds;
    r = row_of(p, track, name, 0);
    r->count++;
    r->seconds += seconds > inside ? seconds - inside : 0;
    /* Spans of the outermost level are never claimed: drop the oldest. */
    if (p->nunclaimed == UNCLAIMED_MOST)
        memmove(p->unclaimed, p->unclaimed + 1,
                (size_t)--p->nunclaimed * sizeof(*p->unclaimed));
    p->unclaimed[p->nunclaimed++] = (struct unclaimed){start, seconds};
}

void plait_profile_beside(struct plait_profile *p, const char *track,
                          const char *name, double seconds)
{
    struct row *r;

    if (!p)
        return;
    r = row_of(p, track, name, 1);
    r->count++;
    r->seconds += seconds;
}

void plait_profile_print(const struct plait_profile *p, FILE *out)
{
    double total = 0;

    if (!p)
        return;
    for (int i = 0; i < p->nrows; i++)
        if (!p->row[i].beside)
            total += p->row[i].seconds;
    fprintf(out, "%-12s %-24s %9s %11s %7s\n", "where", "what", "times",
            "seconds", "share");
    for (int beside = 0; beside < 2; beside++) {
        if (beside)
            fprintf(out, "%-12s %-24s %9s %11.4f %6.1f%%\n", "", "all", "",
                    total, 100.0);
        for (int i = 0; i < p->nrows; i++) {
            const struct row *r = &p->row[i];

            if (r->beside != beside)
                continue;
            fprintf(out, "%-12s %-24s %9" PRIu64 " %11.4f", r->track,
                    strcmp(r->name, r->track) ? r->name : "", r->count,
                    r->seconds);
            if (beside)
                fprintf(out, " beside\n");
            else
                fprintf(out, " %6.1f%%\n", 100 * r->seconds / total);
        }
    }
}
