/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/start/preflight.h"

/* What tasks tell each other. It is checked, since it comes from other
 * processes and its words are printed. */

/* A name of a host, or an address. */
static bool is_host(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789._-:%") == strlen(text);
}

static bool is_rate(double rate)
{
    return isfinite(rate) && rate >= 0;
}

void plait_preflight_print_contact(const struct plait_preflight_contact *c,
                                   char *text, size_t size)
{
    snprintf(text, size, "%d,%s,%d%s", c->node_rank, c->host, c->port,
             c->gpu ? "g" : "");
}

int plait_preflight_read_contact(const char *text, int nnodes,
                                 struct plait_preflight_contact *c)
{
    int n = 0;

    if (sscanf(text, " %9d,%63[^, ],%9d%n", &c->node_rank, c->host, &c->port,
               &n) != 3)
        return -1;
    c->gpu = text[n] == 'g';
    n += c->gpu;
    return c->node_rank >= 0 && c->node_rank < nnodes && c->port > 0 &&
                   c->port < 65536 && is_host(c->host) &&
                   (!text[n] || text[n] == ' ')
               ? n
               : -1;
}

void plait_preflight_print_report(const struct plait_preflight_report *r,
                                  char *text, size_t size)
{
    char gpu[PLAIT_PREFLIGHT_NOTE + 128];
    int used = snprintf(text, size, "%.63s %d %.4g %.4g %.4g %.3g %.15s|%s|",
                        r->node, r->node_rank, r->product, r->memory, r->nic,
                        r->others, r->other, r->faults);

    for (int i = 0; i < r->nedges && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, " %d %.4g",
                         r->edge[i].to, r->edge[i].rate);
    plait_preflight_print_gpu(&r->gpu, gpu, sizeof(gpu));
    if (*gpu && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "|%s", gpu);
}

/* Behind them may be what is known of a GPU. */
static int read_edges(const char *text, int world,
                      struct plait_preflight_report *r)
{
    int n;

    for (; *text && *text != '|'; text += n) {
        struct plait_preflight_edge *edge = &r->edge[r->nedges];

        if (r->nedges == PLAIT_PREFLIGHT_EDGES ||
            sscanf(text, " %9d %31lf%n", &edge->to, &edge->rate, &n) != 2 ||
            edge->to < 0 || edge->to >= world || !is_rate(edge->rate))
            return -1;
        r->nedges++;
    }
    return *text ? plait_preflight_read_gpu(text + 1, &r->gpu) : 0;
}

/* The text up to the next '|', with its characters checked. What follows that,
 * or NULL. */
static const char *read_words(const char *text, char *words, size_t size)
{
    const char *end = strchr(text, '|');

    if (!end)
        return NULL;
    snprintf(words, size, "%.*s", (int)(end - text), text);
    plait_preflight_clean_name(words);
    return end + 1;
}

int plait_preflight_read_report(const char *text, int world, int node_rank,
                                struct plait_preflight_report *r)
{
    int at = 0;

    memset(r, 0, sizeof(*r));
    if (sscanf(text, "%63s %9d %31lf %31lf %31lf %31lf%n", r->node,
               &r->node_rank, &r->product, &r->memory, &r->nic, &r->others,
               &at) != 6 ||
        text[at] != ' ' || !is_host(r->node) || r->node_rank != node_rank ||
        !is_rate(r->product) || !is_rate(r->memory) || !is_rate(r->nic) ||
        !is_rate(r->others))
        return -1;
    text = read_words(text + at + 1, r->other, sizeof(r->other));
    if (text)
        text = read_words(text, r->faults, sizeof(r->faults));
    return text ? read_edges(text, world, r) : -1;
}

/* These characters separate the parts of the line that it is printed into. */
void plait_preflight_clean_name(char *name)
{
    for (; *name; name++)
        if (*name < ' ' || *name > '~' || strchr(";()|", *name))
            *name = '?';
}
